"""The names in messages between server and clients: message types, records and their keys.

| record | kind | in | holds |
|---|---|---|---|
| `ARRAYS` | ArrayRecord | train, evaluate; train's answer | the shared entries of the model, full weights |
| `CONFIG` | ConfigRecord | train, evaluate | settings of the round |
| `EVALUATION` | ConfigRecord | train | the `CONFIG` of an evaluation of the same model, before |
| `FAILED` | ConfigRecord | the answer to both | why the training failed, or the evaluation |
| `METRICS` | MetricRecord | the answers | the client's metrics |
| `COMPRESSED` | ArrayRecord | train's answer, with a codec | codes of the entries that its `ARRAYS` lack |
| `CONTROL` | ArrayRecord | train and its answer, SCAFFOLD | c, and c_i+ - c_i |
| `PERTURBATION` | ArrayRecord | train and its answer, FedSMOO | s, and mu_i - e |
| `MOMENTUM` | ArrayRecord | train, FedCM, MimeLite, Mime | d, the mean gradient of the last round; m |
| `SECOND_MOMENT` | ArrayRecord | train, MimeLite, Mime | v |
| `GRADIENT` | ArrayRecord | train's answer, MimeLite | the gradient of the client's loss at x |
| `GRADIENT` | ArrayRecord | train, and the answer to a question before it, Mime | c; the same |
| `BATCH_STATISTICS` | ArrayRecord | train, questions before it, answers, FedTAN | BatchNorm's, of batches |
| `AUGMENTED` | ArrayRecord | train's answer, FedADMM | the change of x_i + y_i / rho |
| `PROTOTYPES` | ArrayRecord | train and its answer, FedProto | prototypes; sums of features and shares |
| `FEATURES` | ArrayRecord | train's answer, FedPAC | mean features of each class, and their variance |
| `STRUGGLE` | ArrayRecord | train's answer, FedSat | a client's struggle score of each class |
| `CANDIDATE` + name | ArrayRecord | train, evaluate, IFCA | in place of `ARRAYS`, a model to choose from |
| `CHOSEN` | ConfigRecord | the answers, IFCA | the name of the model that the client chose |
| `SUMS` | ArrayRecord | a simulated answer | the sums of a group's answers, in place of their `ARRAYS` |
| `SUM_WEIGHTS` | MetricRecord | the same | the sums' weights |
| `STATES` | ArrayRecord | the answers, if the run has further metrics | their states: what the server adds |
| `CASES` | ArrayRecord | the answers of simulated clients | of each held-out case the row, scores, target |
| `PARTITION` | ConfigRecord | the answer to `QUERY_PARTITION_ID` | the node's partition |
| `MEMORY` | ConfigRecord | the answers | which memory the client found, and which it keeps |
| `MOMENTS` | ArrayRecord | the answer to `QUERY_MOMENTS` | of its training examples, by channel or column |
| `COUNTS` | ConfigRecord | the answer to `QUERY_COUNTS` | counts of the node's data, as JSON |
| `SIZES` | ConfigRecord | the answer to `QUERY_SIZES` | how many training examples the node has |
| `NAMES` | ConfigRecord | the answer to `QUERY_NAMES` | the names of its classes, as JSON, or a digest |
"""

from flwr.app import MessageType

QUERY_PARTITION_ID = f"{MessageType.QUERY}.partition_id"
QUERY_MOMENTS = f"{MessageType.QUERY}.moments"
QUERY_COUNTS = f"{MessageType.QUERY}.counts"
QUERY_COMPLETE = f"{MessageType.QUERY}.complete"  # its `CONFIG` names a `RUN` that will not be resumed
QUERY_SIZES = f"{MessageType.QUERY}.sizes"
QUERY_NAMES = f"{MessageType.QUERY}.names"

ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
EVALUATION = "evaluation"
EVALUATED = f"{EVALUATION}."  # how the names of its records begin in an answer to both
FAILED = "failed"
REASON = "reason"  # in FAILED
COMPRESSED = "compressed"
CONTROL = "control"
PERTURBATION = "perturbation"
MOMENTUM = "momentum"
AUGMENTED = "augmented"
SECOND_MOMENT = "second-moment"
GRADIENT = "gradient"
BATCH_STATISTICS = "batch-statistics"
PROTOTYPES = "prototypes"
FEATURES = "features"
STRUGGLE = "struggle"
CANDIDATE = "model."  # how the names of records begin that have a model to choose from
CHOSEN = "chosen"
MODEL = "model"  # in CHOSEN
SUMS = "sums"
SUM_WEIGHTS = "sum-weights"
STATES = "states"
CASES = "held-out-cases"  # in CONFIG too: the split of which they are asked for
PARTITION = "partition"
MOMENTS = "moments"
COUNTS = "counts"
MEMORY = "memory"
SIZES = "sizes"
NAMES = "names"

# In CONFIG, to the clients.
SERVER_ROUND = "server-round"
CLIENT_LR = "client-lr"
EVAL_SPLITS = "eval-splits"
CLASSES = "classes"  # number of classes, if clients report counts by class
EXTENSIONS = "extensions"
"""The run's own extensions that change what clients send, with commas, in a message's configuration."""
FINE_TUNE = "fine-tune"
ASKED = "asked"  # the record that is asked for before a round's training: then nothing is evaluated
RECALIBRATE = "recalibrate"  # the split on which a client does so, and the one that it recalibrates
ADAPT_BN = "adapt-bn"  # whether clients estimate BatchNorm statistics before they evaluate
OWN_STATISTICS = "own-statistics"  # of BatchNorm: whether a new client estimates them, or takes what it gets
RUN = "run"
CHECKPOINT_ROUND = "checkpoint-round"
UPDATE_BOUND = "update-bound"  # of the L2 norm of x_i - x, where workers clip
UPDATE_STEP = "update-step"  # of the grid that they round it to, if there is one
DIGEST_OF_START = "digest-of-start"  # of what clients have of the model without being sent it
DIGESTS_OF_NAMES = "digests-of-names"  # of what sites number by themselves, as JSON: of classes, of tokens
PROXIMAL_MU = "proximal-mu"
FEATURE_MEAN = "feature-mean"  # by channel or column, where sites with data of their own standardise alike
FEATURE_STD = "feature-std"
ATTACKERS = "attackers"  # in simulations: the partitions of those who change their update
START_LOSS = "start-loss"  # whether clients are to report it; in METRICS the loss of the model they got
DP_NOISE = "dp-noise"  # z of example-level privacy, found for the sizes of all sites

# In METRICS, from the clients.
NUM_EXAMPLES = "num-examples"
TRAIN_EXAMPLES = "train-examples"
LOSS = "loss"
LOCAL_STEPS = "local-steps"
LOCAL_NORM = "local-norm"
LOCAL_LENGTH = "local-length"  # of a client's steps: K lr
CLASS_HITS = "class-hits"
CLASS_EXAMPLES = "class-examples"
SENT_BYTES = "sent-bytes"  # all arrays of a simulated answer, with the model that is not encoded

# In PROTOTYPES: to the clients, and from them.
KNOWN = "known"
FEATURE_SUMS = "sums"
SHARES = "shares"

# In BATCH_STATISTICS, beside ``CALL:ENTRY`` of running statistics.
BATCH_SHARES = "shares"  # examples of a client's batch, and predictions, over the weight of its model
BATCH_WEIGHT = "weight"  # to the clients: the sum of the weights of those that answered
BATCH_GRADIENT = ".gradient"  # how the names of gradients end that are of the array named before

# In FEATURES.
CLASS_MEANS = "class-means"
SPREAD = "spread"

# In STRUGGLE.
SCORES = "scores"

# In PARTITION.
PARTITION_ID = "partition-id"

# In MEMORY: rounds of the run, 0 for no memory; and whether it outlives the node's process.
FOUND = "found"
KEPT = "kept"
ON_DISK = "on-disk"
