
# The distribution's library is where it was, as it was, and what the loader finds.
dpkg --search /usr/lib/*-linux-gnu/libibverbs.so.1 | grep '^libibverbs1'
dpkg --verify libibverbs1 librdmacm1
ldconfig --print-cache | grep libibverbs.so.1
if ldconfig --print-cache | grep rocinante; then exit 1; fi
if ldd /usr/bin/ibv_devices | grep rocinante; then exit 1; fi

# Everything is in its place.
for file in man/man1/roci.1.gz man/man1/roci-run.1.gz bash-completion/completions/roci \
    zsh/vendor-completions/_roci fish/vendor_completions.d/roci.fish doc/rocinante/copyright; do
    test -s "/usr/share/$file" || { echo "the package lacks $file"; exit 1; }
done
