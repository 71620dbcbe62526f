//! What every command of the program stands on: settings, a run's directory, how a command ends, where text goes. It knows no command
//! line.
//!
//! A module uses only those above it:
//!
//! ```text
//! launcher, settings, wording           the environment, the settings, the library's errors in their words
//! room, failure                         the disk; how a command ends
//! console, disk, signals                where text goes, what can be written, Ctrl-C
//! describe, prepare, measure            a run's settings for reports; corpus, model and memory; the measuring loop
//! run                                   a run's directory
//! ```

pub mod launcher;
pub mod settings;
pub mod wording;
pub mod room;
pub mod failure;
pub mod console;
pub mod disk;
pub mod signals;
pub mod describe;
pub mod prepare;
pub mod measure;
pub mod run;
