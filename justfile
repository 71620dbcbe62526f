# What CI runs.
check:
    bash .ci/run

# Format, clippy, docs and tests; no network, no extras.
test:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo test --workspace

# Every fault of docs/reliability.md at full number; under 30 minutes on 2 cores.
faults:
    TPROP_FAULTS=full cargo test -p tprop-cli --test faults -- --nocapture
    cargo test -p tprop --test readers --test robust --test resume

# Licences and sources of dependencies; memory of the code with `unsafe` in it.
audit:
    scripts/deny
    scripts/memcheck
    scripts/miri

# Kernels beside their slow twins.
bench:
    cargo bench -p tprop
