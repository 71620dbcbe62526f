//! Faults, planted and survived. `docs/reliability.md` has the table.
//!
//! By default every fault strikes a few times; `TPROP_FAULTS=full` (`just faults`) gives the numbers of the table. Faults that must
//! strike at an exact place are planted by `TPROP_FAULT` (see `tprop::fault`), so that nothing here depends on timing.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod contents;
mod damage;
mod disk;
mod import;
mod kill;
mod lock;
mod memory;
mod names;
mod numbers;
mod old;
mod power;
mod settings;
mod signals;
mod texts;
mod unreadable;
