#!/usr/bin/env bash
# Says on a pull request what it does to every site that it touches; a later run rewrites the comment.
#
#   comment-diff.sh BERTH BASE NUMBER      in the repository; GH_TOKEN and GITHUB_REPOSITORY as Actions sets them
#
# BERTH is the command to run, BASE the commit that the pull request is against. GitHub takes 65536 characters a comment.
set -euo pipefail
berth=$1 base=$2 number=$3
mark='<!-- berth diff -->'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
"$berth" diff --from "$base" > "$work/diff" || status=$?
[ "$status" -lt 2 ] || exit "$status"
{
  echo "$mark"
  if [ "$status" = 1 ]; then
    echo "### What this change does"
    echo
    echo '~~~~~diff'
    head -c 60000 "$work/diff" | iconv -c -f UTF-8 -t UTF-8
    echo
    echo '~~~~~'
    [ "$(wc -c < "$work/diff")" -le 60000 ] || echo "Cut off; \`berth diff --from $base\` shows all of it."
  else
    echo "Nothing that is rendered changes."
  fi
} > "$work/comment"

comments="repos/$GITHUB_REPOSITORY/issues/$number/comments"
id=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$id" ]; then
  gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" -F "body=@$work/comment"
else
  gh api --silent --method POST "$comments" -F "body=@$work/comment"
fi
