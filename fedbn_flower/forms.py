"""What ``--dataset`` and ``--partition`` may be, in words: quick to import, unlike what parses them."""

DATASET = (
    "digits (embedded), a local folder or file, text:FILE, any Hugging Face name, synthetic:ALPHA,BETA or "
    "quadratic:DIM"
)
PARTITIONER = "CLASSPartitioner:KEY=VALUE,..."
PARTITION = (
    "iid, dirichlet:ALPHA, shards:PER_CLIENT, pathological:CLASSES_PER_CLIENT, natural:COLUMN, "
    f"silos:0-4,5-9 or {PARTITIONER}"
)
