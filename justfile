# What CI runs.
check:
    bash .ci/run

# Format, clippy, docs and tests; no network, no extras.
test:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo test --workspace

# Kernels beside their slow twins.
bench:
    cargo bench -p tprop
