# copy-state VOLUME SETTLE: a tar of what slurmctld and the guard keep, while they run.
#
# slurmctld writes each file of its state beside its place (.new) and then moves it there, so a hard link to the file is a whole
# state of some moment, as it is for a slurmctld that starts after a kill. Each job's script lies in a directory of its own
# (hash.N/job.ID) from before the job is in job_state until long after it has left it: so the files first, then the directories.
set -eu
volume=$1 settle=$2

# What it acknowledged before now is on disk then.
sleep "$settle"

find "$volume" -maxdepth 1 -name '.backup.*' -mmin +1440 -exec rm -rf {} +
copy=$(mktemp -d "$volume/.backup.XXXXXX")
trap 'rm -rf -- "$copy"' EXIT
trap 'exit 1' HUP INT TERM PIPE

link() { # FROM... TO: volumes without hard links get copies
    cp --archive --link -- "$@" 2> /dev/null || cp --archive -- "$@"
}

state() {
    rm -rf -- "$copy/state"
    mkdir -m 0700 -- "$copy/state"
    for file in "$volume"/state/*; do
        case $file in *.new) continue ;; esac
        if [ -f "$file" ]; then link "$file" "$copy/state/" || return 1; fi
    done
    # Between the move away and the move there a file has no name but .old.
    for file in "$copy"/state/*.old; do
        [ ! -e "$file" ] || [ -e "${file%.old}" ] || { echo "${file%.old} is not there" >&2; return 1; }
    done
    for folder in "$volume"/state/*/; do
        if [ -d "$folder" ]; then link "${folder%/}" "$copy/state/" || return 1; fi
    done
}

# A file that is replaced, or a job's directory that is deleted, just as it is linked: once more.
tries=1
until state 2> "$copy/why"; do
    [ $tries -lt 8 ] || { cat -- "$copy/why" >&2; exit 1; }
    tries=$((tries + 1))
    sleep 0.3
done
rm -f -- "$copy/why"

set -- --directory="$copy" state
if [ -d "$volume/conf" ]; then
    # Only links in it ever change.
    cp --archive -- "$volume/conf" "$copy/conf"
    set -- "$@" conf
fi
# The advisor's record only grows, and may be large: it is read in its place.
if [ -d "$volume/advisor" ]; then set -- "$@" --directory="$volume" advisor; fi

# 1: a file changed meanwhile, which counts a changed number of hard links too.
tar --create --file=- --format=posix --hard-dereference --numeric-owner --warning=no-file-changed "$@" || [ $? -eq 1 ]
