#!/bin/dash
# command-loop NUMBER: runs one command after the other. A line comes in; a line with the exit code and the
# number of bytes goes out, and the bytes that the command printed.

out=/tmp/command$1
while :; do
    IFS= read -r line || { sleep 1; continue; }
    # A group of its own, so that the command can be stopped with everything it started.
    setsid dash -c 'echo $$ > '"$out"'.pid; eval "$0"' "$line" > "$out" 2> "$out.err" < /dev/null
    code=$?
    # At the end, so that no error message is in the middle of a line.
    cat "$out.err" >> "$out"
    echo "$code $(wc -c < "$out")"
    cat "$out"
done
