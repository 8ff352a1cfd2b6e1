# switch VOLUME there|back: gives what put-state or put-database unpacked the place of what was there, or takes that back. Each is
# a rename.
set -eu
volume=$1
aside=$volume/.restored before=$volume/.before

case $2 in
there)
    rm -rf -- "$before"
    mkdir -m 0700 -- "$before"
    ls -A -- "$aside" > "$before/.names"
    while read -r name; do
        [ ! -e "$volume/$name" ] || mv -- "$volume/$name" "$before/$name"
        mv -- "$aside/$name" "$volume/$name"
    done < "$before/.names"
    rmdir -- "$aside"
    sync --file-system "$volume"
    ;;
back)
    # The names are those of this run's switch: put-state and put-database forget an earlier one's.
    if [ -e "$before/.names" ]; then
        while read -r name; do
            # What is still aside did not get there.
            [ -e "$aside/$name" ] || rm -rf -- "$volume/$name"
            [ ! -e "$before/$name" ] || mv -- "$before/$name" "$volume/$name"
        done < "$before/.names"
        rm -rf -- "$before"
    fi
    rm -rf -- "$aside"
    ;;
esac
