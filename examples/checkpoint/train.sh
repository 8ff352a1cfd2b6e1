#!/bin/bash
# A job that survives: it trains a small model, keeps a checkpoint after each epoch, and after a requeue goes on from the
# last one. Its result is the same as without any interruption, because all that an epoch depends on is in the
# checkpoint, the random numbers' state included.
#
#   sbatch examples/checkpoint/train.sh
#
# BERTH_CHECKPOINT_DIR is the job's own directory on a volume that all workers see; EPOCHS and PAUSE (seconds) set how long it takes.
#SBATCH --requeue
set -eu

dir=${BERTH_CHECKPOINT_DIR:?} epochs=${EPOCHS:-100} pause=${PAUSE:-1}

state="0 1 0 0" # epochs done, random state, slope, intercept
if [ -s "$dir/checkpoint" ]; then
    read -r state < "$dir/checkpoint"
    echo "resumes after epoch ${state%% *}"
fi

# One epoch of stochastic gradient descent on y = 3x + 1 with noise: state in, state out, with digits enough to be exact.
epoch() {
    awk -v state="$1" '
        function uniform() { random = (random * 16807) % 2147483647; return random / 2147483647 }
        BEGIN {
            split(state, s); random = s[2]; slope = s[3]; intercept = s[4]
            for (i = 0; i < 200; i++) {
                x = uniform(); y = 3 * x + 1 + (uniform() - 0.5) / 5
                wrong = slope * x + intercept - y
                slope -= 0.05 * wrong * x; intercept -= 0.05 * wrong
            }
            printf "%d %d %.17g %.17g\n", s[1] + 1, random, slope, intercept
        }'
}

while [ "${state%% *}" -lt "$epochs" ]; do
    state=$(epoch "$state")
    # Beside it and then in its place: a job that is killed while it writes leaves the checkpoint before.
    printf '%s\n' "$state" > "$dir/checkpoint.new"
    mv "$dir/checkpoint.new" "$dir/checkpoint"
    sleep "$pause"
done
echo "result ${state#* * }"
