"""Every name that travels between server and clients: message types, records, and the keys in them.

| record | kind | in | holds |
|---|---|---|---|
| `ARRAYS` | ArrayRecord | train, evaluate; train's answer | the shared entries of the model, full weights |
| `CONFIG` | ConfigRecord | train, evaluate | what the server says of the round |
| `METRICS` | MetricRecord | the answers | numbers of the client |
| `CONTROL` | ArrayRecord | train and its answer, SCAFFOLD | c, and c_i+ - c_i |
| `PROTOTYPES` | ArrayRecord | train and its answer, FedProto | prototypes; what they are made of |
| `STRUGGLE` | ArrayRecord | train's answer, FedSat | how a client struggles with each class |
| `SUMS` | ArrayRecord | a simulated answer | what a group's answers come to, in the place of their `ARRAYS` |
| `SUM_WEIGHTS` | MetricRecord | the same | the sums' weights |
| `PARTITION` | ConfigRecord | the answer to `QUERY_PARTITION_ID` | the node's partition |
"""

from flwr.app import MessageType

QUERY_PARTITION_ID = f"{MessageType.QUERY}.partition_id"

ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
CONTROL = "control"
PROTOTYPES = "prototypes"
STRUGGLE = "struggle"
SUMS = "sums"
SUM_WEIGHTS = "sum-weights"
PARTITION = "partition"

# In CONFIG, to the clients.
SERVER_ROUND = "server-round"
CLIENT_LR = "client-lr"
CLIENT_LR_DECAY = "client-lr-decay"
EVAL_SPLITS = "eval-splits"
CLASSES = "classes"  # how many, where the client is to count by class
FINE_TUNE = "fine-tune"
RUN = "run"
CHECKPOINT_ROUND = "checkpoint-round"
PROXIMAL_MU = "proximal-mu"

# In METRICS, from the clients.
NUM_EXAMPLES = "num-examples"
TRAIN_EXAMPLES = "train-examples"
LOSS = "loss"
LOCAL_STEPS = "local-steps"
LOCAL_NORM = "local-norm"
CLASS_HITS = "class-hits"
CLASS_EXAMPLES = "class-examples"
SENT_BYTES = "sent-bytes"  # of a simulated answer without its model: the arrays that it would carry

# In PARTITION.
PARTITION_ID = "partition-id"
