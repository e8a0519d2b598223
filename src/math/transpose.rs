//! Transposition, for the one pass of a layer that reads its weights the other way round.

/// Writes `to[c][r] = from[r][c]` for the columns `first..first + to.len() / rows` of `from`, which has `rows` rows of
/// `columns`. Both are row-major; `to` is a band of rows of the transpose.
///
/// # Panics
/// When `from` is not rows x columns, or `to` is no whole number of rows or goes past the last.
pub fn transpose(from: &[f32], rows: usize, columns: usize, first: usize, to: &mut [f32]) {
    // 16 x 16 floats: a block reads and writes whole cache lines and both sides stay in L1.
    const BLOCK: usize = 16;
    assert_eq!(from.len(), rows * columns);
    assert!(to.len().is_multiple_of(rows.max(1)) && first + to.len() / rows.max(1) <= columns);
    let count = to.len() / rows.max(1);
    for column in (0..count).step_by(BLOCK) {
        let columns_here = BLOCK.min(count - column);
        for row in (0..rows).step_by(BLOCK) {
            let rows_here = BLOCK.min(rows - row);
            for c in column..column + columns_here {
                let target = &mut to[c * rows + row..][..rows_here];
                let source = from[row * columns + first + c..].iter().step_by(columns);
                target.iter_mut().zip(source).for_each(|(target, &source)| *target = source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_of_the_transpose_are_exact() {
        for (rows, columns) in [(1, 1), (3, 50), (33, 17), (16, 16), (40, 1)] {
            let from: Vec<f32> = (0..rows * columns).map(|x| x as f32).collect();
            for first in 0..columns {
                let mut to = vec![-1.0; (columns - first) * rows];
                transpose(&from, rows, columns, first, &mut to);
                for c in first..columns {
                    for r in 0..rows {
                        assert_eq!(to[(c - first) * rows + r], from[r * columns + c]);
                    }
                }
            }
        }
    }
}
