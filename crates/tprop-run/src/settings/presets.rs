//! Names for several settings at once.

/// A preset: its name, what it is for and what it sets. Files and the command line have the last word.
pub struct Preset {
    /// What users type.
    pub name: &'static str,
    /// One sentence for people.
    pub doc: &'static str,
    /// Names and values.
    pub sets: &'static [(&'static str, &'static str)],
}

/// All presets.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "reach",
        doc: "Block-parallel BPTT: n state steps make the gradient reach n blocks back, exactly",
        // Exact as long as state_lr · lambda = 1.
        sets: &[
            ("method", "btprop"),
            ("btprop.solver", "penalty"),
            ("btprop.starts", "held"),
            ("btprop.state_optim", "sgd"),
            ("btprop.init", "sequential"),
            ("btprop.state_lr", "1"),
            ("btprop.lambda", "1"),
            ("btprop.last", "none"),
            ("btprop.first", "fixed"),
        ],
    },
    Preset {
        name: "scan",
        doc: "The gradient of the whole window, all blocks side by side: reach with starts and pulls found by scans",
        sets: &[
            ("method", "btprop"),
            ("btprop.solver", "penalty"),
            ("btprop.starts", "held"),
            ("btprop.state_optim", "sgd"),
            ("btprop.init", "carried:6"),
            ("btprop.sweep_tol", "0.02"),
            ("btprop.scan", "both"),
            ("btprop.state_steps", "1"),
            ("btprop.state_lr", "1"),
            ("btprop.lambda", "1"),
            ("btprop.last", "none"),
            ("btprop.first", "fixed"),
        ],
    },
    Preset {
        name: "parity",
        doc: "What the paper's released code does, where it differs from the paper",
        sets: &[
            ("method", "btprop"),
            ("btprop.solver", "admm"),
            ("btprop.blocks", "32"),
            ("train.streams", "1"),
            ("btprop.init", "parallel:1"),
            ("btprop.duals", "reset"),
            ("btprop.last", "free0"),
            ("btprop.first", "free"),
            ("btprop.state_optim", "adagrad"),
            ("btprop.state_lr", "0.01"),
            ("btprop.state_scale", "mean"),
            ("btprop.dual_order", "before_theta"),
            ("btprop.dual_rule", "mean"),
            ("btprop.dual_start", "3"),
            ("btprop.ignore", "first"),
        ],
    },
];

/// The preset of a name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}
