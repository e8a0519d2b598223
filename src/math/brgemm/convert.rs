//! Between row-major matrices and panels, on a team: what stands at the ends of a chain of layers.

use bytemuck::Pod;

use super::panels::{Panels, Row, WIDTH};
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::Rows;

/// Runs `fill(panel, first row, rows of it)` for pieces that cover the first `rows` rows of all panels.
fn fill<T: Pod + Send>(
    team: &Team,
    rows: usize,
    to: &mut Panels<T>,
    fill: impl Fn(usize, usize, &mut [Row<T>]) + Sync,
) {
    team.share(to.grid(rows, team.pieces(), 1), |mut part| {
        for panel in part.panels() {
            let first = part.rows().start;
            fill(panel, first, part.panel(panel));
        }
    });
}

/// The first `rows` rows of `to` from a row-major matrix, element (i, j) at `i * row + j`.
///
/// # Panics
/// When either matrix is too small.
pub fn import_rows<T: Pod + Send + Sync>(team: &Team, rows: usize, from: &[T], row: usize, to: &mut Panels<T>) {
    let columns = to.columns();
    fill(team, rows, to, |panel, first, rows| {
        let width = WIDTH.min(columns - panel * WIDTH);
        for (i, to) in rows.iter_mut().enumerate() {
            to[..width].copy_from_slice(&from[(first + i) * row + panel * WIDTH..][..width]);
        }
    });
}

/// The first `rows` rows of `to` from those of `from`, rounded to bfloat16.
///
/// # Panics
/// When the matrices differ in columns or have fewer rows.
pub fn narrow_panels(team: &Team, rows: usize, from: &Panels<f32>, to: &mut Panels<u16>) {
    assert_eq!(from.columns(), to.columns(), "as many columns");
    let isa = team.isa();
    fill(team, rows, to, |panel, first, to| {
        isa.run(Narrow { from: &from.panel(panel)[first..][..to.len()], to });
    });
}

/// Rows of a panel, rounded.
struct Narrow<'a> {
    from: &'a [Row<f32>],
    to: &'a mut [Row<u16>],
}

impl Kernel for Narrow<'_> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            for at in (0..WIDTH).step_by(S::LANES) {
                simd.narrow(simd.load(&from[at..]), &mut to[at..]);
            }
        }
    }
}

/// Every row of `to`, which is row-major with rows of `row` elements, from the first rows of `from`.
///
/// # Panics
/// When `from` has fewer rows, or `row` is less than its columns.
pub fn export_rows<T: Pod + Send + Sync>(team: &Team, from: &Panels<T>, to: &mut [T], row: usize) {
    team.share(Rows::new(to, row, team.pieces(), 1), |band| {
        from.export(band.first..band.first + band.rows, band.data, row);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::bf16::narrow;

    #[test]
    fn teams_convert_as_one_thread_does() {
        for threads in [1, 3] {
            let team = Team::new(threads).unwrap();
            for (rows, columns) in [(1, 1), (50, 13), (7, 65), (33, 479)] {
                let row = columns + 3;
                let from: Vec<f32> = (0..rows * row).map(|i| i as f32 / 7.0).collect();
                let mut expected = Panels::zeroed(rows, columns);
                expected.import(0..rows, &from, row);
                let mut panels = Panels::zeroed(rows, columns);
                import_rows(&team, rows, &from, row, &mut panels);
                assert_eq!(panels.cells(), expected.cells());
                let mut back = vec![-1.0; rows * row];
                export_rows(&team, &panels, &mut back, row);
                assert!((0..rows * row).all(|i| back[i] == if i % row < columns { from[i] } else { -1.0 }));
                let mut halves = Panels::zeroed(rows, columns);
                narrow_panels(&team, rows, &panels, &mut halves);
                let pairs = halves.cells().as_flattened().iter().zip(expected.cells().as_flattened());
                assert!(pairs.into_iter().all(|(&half, &x)| half == narrow(x)));
            }
        }
    }
}
