//! One training step of the `kaggle` model on random look-ups, at the minibatch sizes that users start with.
//!
//! The answer is checked before it is timed: the first loss must be the same for one thread and for all.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use octorec::base::config::{Config, Layers};
use octorec::data::{self, Batch, Opening, Source, Split};
use octorec::machine::team::Team;
use octorec::model::Dlrm;
use octorec::train::{Clock, step};

fn config() -> Config {
    let mut layers = Layers::default();
    layers.preset("kaggle").expect("a built-in preset");
    layers.document("[data]\nsource = \"random\"\nzipf = 1.05\n[model]\nrows = [\n100000, 5000, 30, 100000, 2000, 10, 100000, 3, 500, 100000, 40, 100000, 9]", "bench").expect("known keys");
    layers.finish().expect("a valid configuration")
}

fn trained(config: &Config, source: &Arc<dyn Source>, threads: usize) -> (Team, Dlrm) {
    let team = Team::new(threads).expect("threads");
    let mut model = Dlrm::new(&config.model, source.schema(), &team, 2048).expect("memory");
    model.initialise(&team, 1);
    (team, model)
}

fn steps(criterion: &mut Criterion) {
    let config = config();
    let source = data::open(&config, Opening::default()).expect("random data");
    let mut group = criterion.benchmark_group("kaggle step");
    for samples in [128, 2048] {
        let mut batch = Batch::new(source.schema());
        source.open(Split::Train, 0).and_then(|mut reader| reader.read(&mut batch, samples)).expect("random data");
        let (team, mut model) = trained(&config, &source, 0);
        let (lone, mut reference) = trained(&config, &source, 1);
        let expected = step(&lone, &mut reference, &batch, 0.01, &mut Clock::new(false));
        assert_eq!(
            step(&team, &mut model, &batch, 0.01, &mut Clock::new(false)).to_bits(),
            expected.to_bits(),
            "threads change no bit"
        );
        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(BenchmarkId::from_parameter(samples), |bencher| {
            bencher.iter(|| black_box(step(&team, &mut model, &batch, 0.01, &mut Clock::new(false))));
        });
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
