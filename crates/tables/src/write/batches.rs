//! Parquet files from arrays of columns.

use std::{fmt, io::Write};

use ::parquet::arrow::ArrowWriter;
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::SchemaRef;

use super::parquet;

/// About the bytes of rows that are encoded at once, which takes several times as many.
const PIECE: usize = 1 << 20;

/// Writes a Parquet file from arrays of its columns. At most about 8 MiB of a row group are kept in
/// memory.
pub struct BatchWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> BatchWriter<W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// Parquet has no form for a type, or the file cannot be written.
    pub fn new(output: W, schema: &SchemaRef) -> Result<Self, String> {
        parquet::writer(output, schema).map(|writer| Self { writer })
    }

    /// Writes rows, whose columns are those of the file.
    ///
    /// # Errors
    /// The columns are others, or the file cannot be written.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        let count = rows.num_rows();
        let bytes = rows.columns().iter().map(|it| it.to_data().get_slice_memory_size());
        let bytes = bytes.sum::<Result<usize, _>>().map_err(|cause| cause.to_string())?;
        let most = (count * PIECE / bytes.max(1)).max(1);
        for start in (0..count).step_by(most) {
            let piece = rows.slice(start, most.min(count - start));
            self.writer.write(&piece).map_err(|cause| cause.to_string())?;
        }
        Ok(())
    }

    /// Writes what is buffered, and the footer. Returns the output, which is not flushed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<W, String> {
        self.writer.into_inner().map_err(|cause| cause.to_string())
    }
}

impl<W: Write + Send> fmt::Debug for BatchWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
    use arrow_array::{ArrayRef, Float32Array, ListArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;
    use bytes::Bytes;

    use super::*;

    #[test]
    fn large_rows_are_encoded_a_few_at_a_time() {
        const ROWS: usize = 24;
        const BYTES: usize = 1 << 20;
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values(
            (0..ROWS * BYTES / size_of::<f32>()).map(|value| value as f32),
        ));
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_repeated_length(BYTES / size_of::<f32>(), ROWS);
        let lists: ArrayRef = Arc::new(ListArray::new(field, offsets, values, None));
        let rows = RecordBatch::try_from_iter([("score", lists)]).expect("a table");
        let mut writer = BatchWriter::new(Vec::new(), &rows.schema()).expect("a file");
        writer.write(&rows).expect("written");
        let file = Bytes::from(writer.finish().expect("complete"));
        let file = SerializedFileReader::new(file).expect("a Parquet file");
        let groups = file.metadata().row_groups();
        assert_eq!(groups.iter().map(|group| group.num_rows()).sum::<i64>(), ROWS as i64);
        // All would be in one group if they were encoded at once.
        let largest = groups.iter().map(|group| group.num_rows()).max().expect("a group");
        assert!(largest < 10, "{largest} rows of 1 MiB are in one group");
    }
}
