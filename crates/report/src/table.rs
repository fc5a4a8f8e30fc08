// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Aligned tables of text: words to the left, figures to the right.
use std::fmt;

/// Rows of cells; it is printed by [`fmt::Display`].
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words, the first ones.
    words: usize,
    /// The last column holds words, too.
    words_last: bool,
}

impl Table {
    /// `head`: one cell for each column, with its unit.
    pub fn new(head: &[&str]) -> Self {
        Table {
            rows: vec![head.iter().map(|cell| cell.to_string()).collect()],
            words: 1,
            words_last: false,
        }
    }

    /// The first `words` columns hold words; without this, one does.
    pub fn words(mut self, words: usize) -> Self {
        self.words = words;
        self
    }

    /// The last column holds words, too: a long one does not push the others out of sight.
    pub fn words_last(mut self) -> Self {
        self.words_last = true;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether it has its head alone.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let fill = " ".repeat(widths[column] - cell.chars().count());
                let word = column < self.words || self.words_last && column + 1 == columns;
                match word {
                    true => line.push_str(&format!("  {cell}{fill}")),
                    false => line.push_str(&format!("  {fill}{cell}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn words_stand_to_the_left_and_figures_to_the_right() {
        let mut table = Table::new(&["row", "metric", "us", "verdict"])
            .words(2)
            .words_last();
        for cells in [["a", "time", "10", "right"], ["bcd", "x", "9", "not simulated"]] {
            table.row(cells.map(str::to_string).to_vec());
        }
        assert_eq!(
            table.to_string(),
            "  row  metric  us  verdict\n  a    time    10  right\n  bcd  x        9  not simulated\n"
        );
    }
}
