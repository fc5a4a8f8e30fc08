// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as typed columns, and as Parquet. The same columns give the same bytes.
use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{get_typed_column_reader, ColumnReader};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Integer(i64),
    Number(f64),
    Flag(bool),
    Text(String),
}

/// Values by the names of their columns; a column that is not there has none.
pub type Row = BTreeMap<String, Cell>;

/// What a column's values are. Where whole numbers and others meet they are numbers; where anything else meets, texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Number,
    Flag,
    Text,
}

impl Cell {
    pub fn kind(&self) -> Kind {
        match self {
            Cell::Integer(_) => Kind::Integer,
            Cell::Number(_) => Kind::Number,
            Cell::Flag(_) => Kind::Flag,
            Cell::Text(_) => Kind::Text,
        }
    }

    /// `None`: it is not a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Integer(value) => Some(*value as f64),
            Cell::Number(value) => Some(*value),
            Cell::Flag(_) | Cell::Text(_) => None,
        }
    }

    /// `None`: it is not a whole number.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Cell::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// As a table shows it.
    pub fn text(&self) -> String {
        match self {
            Cell::Integer(value) => value.to_string(),
            Cell::Number(value) => value.to_string(),
            Cell::Flag(value) => value.to_string(),
            Cell::Text(value) => value.clone(),
        }
    }
}

impl Kind {
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (a, b) if a == b => a,
            (Kind::Integer | Kind::Number, Kind::Integer | Kind::Number) => Kind::Number,
            _ => Kind::Text,
        }
    }
}

/// A column's values, one of each row or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    Integer(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Flag(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
}

impl Column {
    fn new(kind: Kind, cells: impl Iterator<Item = Option<Cell>>) -> Self {
        match kind {
            Kind::Integer => Column::Integer(cells.map(|cell| cell?.integer()).collect()),
            Kind::Number => Column::Number(cells.map(|cell| cell?.number()).collect()),
            Kind::Flag => Column::Flag(
                cells
                    .map(|cell| match cell? {
                        Cell::Flag(value) => Some(value),
                        _ => None,
                    })
                    .collect(),
            ),
            Kind::Text => Column::Text(cells.map(|cell| Some(cell?.text())).collect()),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Column::Integer(_) => Kind::Integer,
            Column::Number(_) => Kind::Number,
            Column::Flag(_) => Kind::Flag,
            Column::Text(_) => Kind::Text,
        }
    }

    /// The value of a row.
    pub fn cell(&self, row: usize) -> Option<Cell> {
        match self {
            Column::Integer(values) => values[row].map(Cell::Integer),
            Column::Number(values) => values[row].map(Cell::Number),
            Column::Flag(values) => values[row].map(Cell::Flag),
            Column::Text(values) => values[row].clone().map(Cell::Text),
        }
    }

    fn len(&self) -> usize {
        match self {
            Column::Integer(values) => values.len(),
            Column::Number(values) => values.len(),
            Column::Flag(values) => values.len(),
            Column::Text(values) => values.len(),
        }
    }
}

/// Why a file cannot be read as a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("not a Parquet file that can be read: {0}")]
    Parquet(#[from] ParquetError),
    #[error("column {column}: {found}; allowed: texts, booleans, numbers of 32 and 64 bits, not nested")]
    Column { column: String, found: String },
}

/// Columns of the same length, each with its name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Columns(pub Vec<(String, Column)>);

/// Bounds the memory of a writer, and of a reader that takes one after another.
const ROW_GROUP_ROWS: usize = 65_536;

impl Columns {
    /// Columns of rows: those named in `first`, in their order, if a row has them; then all others by their names.
    pub fn of(rows: &[Row], first: &[String]) -> Self {
        let mut kinds: BTreeMap<&String, Kind> = BTreeMap::new();
        for (name, cell) in rows.iter().flatten() {
            let kind = cell.kind();
            kinds
                .entry(name)
                .and_modify(|all| *all = all.with(kind))
                .or_insert(kind);
        }
        let others = kinds.keys().filter(|name| !first.contains(name)).copied();
        let names = first.iter().filter(|name| kinds.contains_key(name)).chain(others);
        let column = |name: &String| {
            let cells = rows.iter().map(|row| row.get(name).cloned());
            (name.clone(), Column::new(kinds[name], cells))
        };
        Columns(names.map(column).collect())
    }

    pub fn rows(&self) -> usize {
        self.0.first().map_or(0, |(_, column)| column.len())
    }

    pub fn get(&self, name: &str) -> Option<&Column> {
        self.0
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, column)| column)
    }

    /// A row by its number.
    pub fn row(&self, row: usize) -> Row {
        self.0
            .iter()
            .filter_map(|(name, column)| Some((name.clone(), column.cell(row)?)))
            .collect()
    }

    /// The bytes of a Parquet file.
    pub fn parquet(&self) -> Result<Vec<u8>, TableError> {
        let field = |(name, column): &(String, Column)| {
            let (physical, logical) = match column.kind() {
                Kind::Integer => (Physical::INT64, None),
                Kind::Number => (Physical::DOUBLE, None),
                Kind::Flag => (Physical::BOOLEAN, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let converted = match logical {
                Some(_) => ConvertedType::UTF8,
                None => ConvertedType::NONE,
            };
            Type::primitive_type_builder(name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .with_converted_type(converted)
                .build()
                .map(Arc::new)
        };
        let fields = self.0.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("plimsoll").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("plimsoll {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        for from in (0..self.rows()).step_by(ROW_GROUP_ROWS) {
            let to = self.rows().min(from + ROW_GROUP_ROWS);
            let mut group = writer.next_row_group()?;
            for (_, column) in &self.0 {
                let mut writer = group.next_column()?.expect("the schema has this many columns");
                match (writer.untyped(), column) {
                    (ColumnWriter::Int64ColumnWriter(to_file), Column::Integer(values)) => {
                        let (present, values) = levels(&values[from..to], |value| *value);
                        to_file.write_batch(&values, Some(&present), None)?
                    }
                    (ColumnWriter::DoubleColumnWriter(to_file), Column::Number(values)) => {
                        let (present, values) = levels(&values[from..to], |value| *value);
                        to_file.write_batch(&values, Some(&present), None)?
                    }
                    (ColumnWriter::BoolColumnWriter(to_file), Column::Flag(values)) => {
                        let (present, values) = levels(&values[from..to], |value| *value);
                        to_file.write_batch(&values, Some(&present), None)?
                    }
                    (ColumnWriter::ByteArrayColumnWriter(to_file), Column::Text(values)) => {
                        let (present, values) = levels(&values[from..to], |text| {
                            ByteArray::from(text.as_bytes().to_vec())
                        });
                        to_file.write_batch(&values, Some(&present), None)?
                    }
                    _ => unreachable!("the schema is made of the columns"),
                };
                writer.close()?;
            }
            group.close()?;
        }
        Ok(writer.into_inner()?)
    }

    /// What such a file holds; `only`: of these columns, where they are there.
    pub fn read(bytes: Vec<u8>, only: Option<&[&str]>) -> Result<Self, TableError> {
        let reader = SerializedFileReader::new(Bytes::from(bytes))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let mut columns = Columns::default();
        for (at, descriptor) in schema.columns().iter().enumerate() {
            let name = descriptor.path().parts().join(".");
            if only.is_some_and(|only| !only.contains(&name.as_str())) {
                continue;
            }
            let refused = || TableError::Column {
                column: name.clone(),
                found: format!("{:?}", descriptor.physical_type()),
            };
            if descriptor.max_rep_level() > 0 || descriptor.path().parts().len() > 1 {
                return Err(refused());
            }
            let optional = descriptor.max_def_level() > 0;
            let mut column = match descriptor.physical_type() {
                Physical::INT32 | Physical::INT64 => Column::Integer(Vec::new()),
                Physical::FLOAT | Physical::DOUBLE => Column::Number(Vec::new()),
                Physical::BOOLEAN => Column::Flag(Vec::new()),
                Physical::BYTE_ARRAY => Column::Text(Vec::new()),
                _ => return Err(refused()),
            };
            for number in 0..reader.num_row_groups() {
                let group = reader.get_row_group(number)?;
                let rows = group.metadata().num_rows() as usize;
                let from = group.get_column_reader(at)?;
                match &mut column {
                    Column::Integer(values) if descriptor.physical_type() == Physical::INT32 => {
                        let short = read::<Int32Type>(from, rows, optional)?;
                        values.extend(short.into_iter().map(|value| value.map(i64::from)))
                    }
                    Column::Integer(values) => values.extend(read::<Int64Type>(from, rows, optional)?),
                    Column::Number(values) if descriptor.physical_type() == Physical::FLOAT => {
                        let short = read::<FloatType>(from, rows, optional)?;
                        values.extend(short.into_iter().map(|value| value.map(f64::from)))
                    }
                    Column::Number(values) => values.extend(read::<DoubleType>(from, rows, optional)?),
                    Column::Flag(values) => values.extend(read::<BoolType>(from, rows, optional)?),
                    Column::Text(values) => {
                        for text in read::<ByteArrayType>(from, rows, optional)? {
                            let text = text.map(|text| text.as_utf8().map(str::to_string));
                            values.push(text.transpose()?);
                        }
                    }
                }
            }
            columns.0.push((name, column));
        }
        Ok(columns)
    }
}

/// Parquet's form of values of which some are missing: whether each is there, and those that are.
fn levels<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<i16>, Vec<U>) {
    let present = values.iter().map(|value| value.is_some() as i16).collect();
    (present, values.iter().flatten().map(of).collect())
}

fn read<T: DataType>(
    from: ColumnReader,
    rows: usize,
    optional: bool,
) -> Result<Vec<Option<T::T>>, ParquetError> {
    let mut reader = get_typed_column_reader::<T>(from);
    let (mut values, mut present) = (Vec::with_capacity(rows), Vec::new());
    let levels = optional.then_some(&mut present);
    let (records, _, _) = reader.read_records(rows, levels, None, &mut values)?;
    if records != rows {
        return Err(ParquetError::General(format!(
            "{records} of {rows} rows are there"
        )));
    }
    let mut values = values.into_iter();
    Ok(match optional {
        true => present
            .iter()
            .map(|level| if *level > 0 { values.next() } else { None })
            .collect(),
        false => values.map(Some).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |cells: &[(&str, Cell)]| {
            cells
                .iter()
                .map(|(name, cell)| (name.to_string(), cell.clone()))
                .collect()
        };
        vec![
            row(&[
                ("b", Cell::Integer(1)),
                ("mixed", Cell::Text("max".into())),
                ("x", Cell::Integer(3)),
            ]),
            row(&[
                ("a", Cell::Flag(true)),
                ("mixed", Cell::Integer(7)),
                ("x", Cell::Number(0.5)),
            ]),
        ]
    }

    #[test]
    fn what_is_written_is_read_and_columns_have_one_kind() {
        let columns = Columns::of(&rows(), &["x".to_string(), "absent".to_string()]);
        let names: Vec<&str> = columns.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x", "a", "b", "mixed"]);
        assert_eq!(
            columns.get("x"),
            Some(&Column::Number(vec![Some(3.0), Some(0.5)]))
        );
        assert_eq!(columns.get("b"), Some(&Column::Integer(vec![Some(1), None])));
        let texts = vec![Some("max".to_string()), Some("7".to_string())];
        assert_eq!(columns.get("mixed"), Some(&Column::Text(texts)));
        let bytes = columns.parquet().unwrap();
        assert_eq!(Columns::read(bytes.clone(), None).unwrap(), columns);
        assert_eq!(Columns::read(bytes, Some(&["b"])).unwrap().0.len(), 1);
    }

    #[test]
    fn half_a_file_is_refused() {
        let mut bytes = Columns::of(&rows(), &[]).parquet().unwrap();
        bytes.truncate(bytes.len() / 2);
        assert!(Columns::read(bytes, None).is_err());
    }
}
