//! One rank on this machine, against which others are held.

use octorec::base::config::ModelConfig;
use octorec::base::{RankId, Result};
use octorec::data::Schema;
use octorec::machine::placement::Wishes;
use octorec::machine::{Machine, place};
use octorec::model::TrainSpec;
use octorec::shard::scheme::{Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{Ranks, Setup};

/// Starts a single rank with whole tables on `threads` threads, all weights 0.
pub fn alone(config: &ModelConfig, schema: &Schema, spec: TrainSpec, threads: usize, isa: Isa) -> Result<Ranks> {
    let wishes = Wishes { ranks: Some(1), threads: Some(threads), ..Wishes::default() };
    let placement = place(&Machine::load("host")?, &wishes)?;
    let rows: Vec<u64> = schema.tables.iter().map(|column| column.rows).collect();
    let schemes = vec![Scheme::Table(RankId(0)); rows.len()];
    let sharding = Sharding::new(&rows, config.dims(&rows), 1, schemes).expect("whole tables divide nothing");
    Ranks::start(Setup { isa, ..Setup::new(config, schema, sharding, spec, &placement) })
}
