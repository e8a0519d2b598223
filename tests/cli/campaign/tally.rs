//! What a campaign did and found, counted by kind.

use std::collections::BTreeMap;
use std::fmt;

use super::case::Case;

/// Counts of one kind.
#[derive(Debug, Default)]
struct Counts {
    cases: usize,
    commands: usize,
    kills: usize,
    damages: usize,
    broken: usize,
    skipped: Option<String>,
}

/// Counts by kind.
#[derive(Debug, Default)]
pub struct Tally {
    kinds: BTreeMap<String, Counts>,
    /// What the last case ran.
    commands: Vec<String>,
}

impl Tally {
    /// Counts a case, and tells at once what it found.
    pub fn add(&mut self, family: &str, seed: u64, number: u64, case: &Case<'_>) {
        let kind = if case.kind.is_empty() { family.to_owned() } else { format!("{family}: {}", case.kind) };
        for broken in &case.broken {
            println!("broken promise ({kind}): {broken}\n    repeat: make campaign SEED={seed} CASE={number}");
        }
        let counts = self.kinds.entry(kind).or_default();
        counts.cases += 1;
        counts.commands += case.lines.len();
        counts.kills += case.kills;
        counts.damages += case.damages;
        counts.broken += case.broken.len();
        counts.skipped.clone_from(&case.skipped);
        self.commands.clone_from(&case.lines);
    }

    /// Prints what the last case ran.
    pub fn show_commands(&self) {
        self.commands.iter().for_each(|line| println!("ran: {line}"));
    }

    /// Promises that were broken.
    pub fn broken(&self) -> usize {
        self.kinds.values().map(|counts| counts.broken).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n| kind | cases | commands | kills and signals | damaged inputs | broken promises |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        let mut all = Counts::default();
        for (kind, Counts { cases, commands, kills, damages, broken, skipped }) in &self.kinds {
            let skipped = skipped.as_ref().map(|reason| format!(" (skipped: {reason})")).unwrap_or_default();
            writeln!(f, "| {kind}{skipped} | {cases} | {commands} | {kills} | {damages} | {broken} |")?;
            all.cases += cases;
            all.commands += commands;
            all.kills += kills;
            all.damages += damages;
            all.broken += broken;
        }
        let Counts { cases, commands, kills, damages, broken, .. } = all;
        write!(f, "| all | {cases} | {commands} | {kills} | {damages} | {broken} |")
    }
}
