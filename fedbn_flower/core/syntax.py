"""The syntax of some keys, for help texts; apart from their parsers, which are slow to import."""

DATASET = (
    "scanners and digits (embedded), a local folder or table, text:FILE, tokens:TOKENIZER.json:FILE, "
    "synthetic:ALPHA,BETA, quadratic:DIM, or any Hugging Face name"
)
PARTITIONER = "CLASSPartitioner:KEY=VALUE,..."
PARTITION = (
    "iid, dirichlet:ALPHA, shards:PER_CLIENT, pathological:CLASSES_PER_CLIENT, natural:COLUMN, "
    f"silos, silos:0-4,5-9 or {PARTITIONER}"
)
UNION = "NAME+NAME: keeps at home what either does, with the methods of both, as in fedbn+fedper"

GROUPS = "a column, or name=PATTERN with a regular expression that has one group"
"""What ``--group-column`` takes, see `data.groups`."""

SPLIT_BY = "COLUMN<VALUE with a number or a date such as 2024-01-31"
"""What ``--split-by`` takes, see `data.split_by`."""

SUBGROUPS = (
    "columns with commas, or comparisons of them with a number, a date or a word: sex,age>=65,smoker==yes"
)
"""What ``--subgroups`` takes, see `data.subgroups`."""
