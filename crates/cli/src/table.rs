//! Aligned tables of text: words to the left, figures to the right.
use std::fmt;

#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words, the first ones.
    words: usize,
}

impl Table {
    /// `head`: one cell for each column, with its unit.
    pub fn new(head: &[&str]) -> Self {
        Table {
            rows: vec![head.iter().map(|cell| cell.to_string()).collect()],
            words: 1,
        }
    }

    /// The first `words` columns hold words; without this, one does.
    pub fn words(mut self, words: usize) -> Self {
        self.words = words;
        self
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

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
                match column {
                    column if column < self.words => line.push_str(&format!("  {cell}{fill}")),
                    _ => line.push_str(&format!("  {fill}{cell}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
