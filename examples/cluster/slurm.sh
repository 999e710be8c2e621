#!/bin/bash
# A search on two nodes of a SLURM cluster: sbatch slurm.sh. The same again goes on where the time was up.
#SBATCH --job-name=alternas
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --time=12:00:00
set -euo pipefail
cd "$SLURM_SUBMIT_DIR" # on a file system that all nodes see: runs/ is made here
source .venv/bin/activate
# A token for this job, which srun hands to every node: nobody else's jobs get at these Rays.
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Starts Ray on every node, runs the command on the first, and stops Ray.
srun ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" -- \
    alternas search all --data photos --trials 500 --address auto --gpus-per-trial 0.5 --max-hours 11.5 --name photos
