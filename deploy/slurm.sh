#!/usr/bin/env bash
# A simulation on the nodes of a Slurm job: Ray's head on the first, workers on all. Flags go to run_sim.py:
#
#   sbatch deploy/slurm.sh --num-clients 100 --partition iid --rounds 50
#   sbatch --nodes 4 --gpus-per-node 2 deploy/slurm.sh --device cuda --num-clients 100 --partition iid
#
# The checkout, its .venv and the data lie on a disk that all nodes see. A job that ran out of time is gone on
# with by --resume runs/slurm-JOB.
#SBATCH --job-name=fedbn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=fedbn-%j.log
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?start it with sbatch}"
[ ! -d .venv ] || export PATH="$PWD/.venv/bin:$PATH"
export OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID # so that no other program on a node takes this Ray for its own
export RAY_prestart_worker_first_driver=0 # of the workers that Ray would start, a run uses none
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # from Slurm 22.05 on, srun does not take it over
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 10000))

srun --nodes=1 --ntasks=1 --nodelist="$first" ray start --head --block --disable-usage-stats \
    --node-ip-address="$address" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false &
until ray status --address "$address:$port" > /dev/null 2>&1; do
    kill -0 $! # ends the job if Ray has ended
    sleep 2
done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    others=$((SLURM_JOB_NUM_NODES - 1))
    srun --nodes="$others" --ntasks="$others" --exclude="$first" ray start --block --disable-usage-stats \
        --address="$address:$port" --num-cpus="$SLURM_CPUS_PER_TASK" &
fi

run_dir=(--run-dir "runs/slurm-$SLURM_JOB_ID")
case " $* " in *" --run-dir "* | *" --resume "*) run_dir=() ;; esac
python run_sim.py --backend ray --ray-address "$address:$port" \
    --workers $((SLURM_JOB_NUM_NODES * SLURM_CPUS_PER_TASK)) ${run_dir[@]+"${run_dir[@]}"} "$@"
