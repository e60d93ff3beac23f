//! The pages of a file's columns, read within limits: each is measured before it is decompressed.

use std::{
    io::{self, BufRead as _, BufReader, Read},
    ops::Range,
    sync::Arc,
};

use brotli::Decompressor as BrotliDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::{
    arrow::arrow_reader::RowGroups,
    basic::{Compression, Encoding, Type},
    column::page::{Page, PageIterator, PageMetadata, PageReader},
    errors::{ParquetError, Result},
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::ChunkReader as _,
        serialized_reader::SerializedPageReader,
    },
};

use super::{budget::Budget, delta, header::Header, rows::Rows};
use crate::read::blob::Blob;

/// The encodings of data pages whose memory is measured before they are decoded.
const ENCODINGS: [Encoding; 8] = [
    Encoding::PLAIN,
    Encoding::RLE,
    #[allow(deprecated)]
    Encoding::PLAIN_DICTIONARY,
    Encoding::RLE_DICTIONARY,
    Encoding::DELTA_BINARY_PACKED,
    Encoding::BYTE_STREAM_SPLIT,
    Encoding::DELTA_LENGTH_BYTE_ARRAY,
    Encoding::DELTA_BYTE_ARRAY,
];
/// The beginning of a page of older LZ4.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The bytes of Brotli that are read at once.
const BUFFER: usize = 4096;

/// The pages of a file.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    pub(super) file: Blob,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) budget: Arc<Budget>,
    /// The row groups that are read.
    pub(super) groups: Range<usize>,
    /// The rows that are decoded together.
    pub(super) batch: usize,
    /// The bytes of a column that are read ahead if the file is elsewhere.
    pub(super) ahead: usize,
}

impl RowGroups for Pages {
    fn num_rows(&self) -> usize {
        let rows = self.row_groups().map(RowGroupMetaData::num_rows);
        rows.fold(0, |sum, rows| sum.saturating_add(usize::try_from(rows).unwrap_or_default()))
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let groups = self.groups.clone();
        Ok(Box::new(Chunks { pages: self.clone(), column, groups }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups()[self.groups.clone()].iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of a column.
struct Chunks {
    pages: Pages,
    column: usize,
    groups: Range<usize>,
}

impl Iterator for Chunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.groups.next()?;
        Some(Chunk::open(&self.pages, group, self.column).map(|chunk| Box::new(chunk) as _))
    }
}

impl PageIterator for Chunks {}

/// The pages of a column in a row group.
struct Chunk {
    inner: SerializedPageReader<Blob>,
    file: Arc<Blob>,
    budget: Arc<Budget>,
    /// The part of the file with the pages that have not been read.
    left: Range<u64>,
    compression: Compression,
    /// True if decoded values are parts of the pages.
    is_text: bool,
    /// The most repetition and definition levels.
    levels: [i16; 2],
    /// The bytes of the dictionary, and of the page that is decoded.
    dictionary: u64,
    page: u64,
    /// The rows of a column of lists.
    rows: Option<Rows>,
}

/// A page before it is read.
struct Measured {
    /// Its bytes when it is decompressed.
    bytes: u64,
    /// Its place in the file.
    start: u64,
    length: u64,
}

impl Chunk {
    fn open(pages: &Pages, group: usize, column: usize) -> Result<Self> {
        let group = pages.metadata.row_group(group);
        let chunk = group.column(column);
        let rows = usize::try_from(group.num_rows())?;
        let (start, length) = chunk.byte_range();
        let column = chunk.column_descr();
        let levels = [column.max_rep_level(), column.max_def_level()];
        let left = start..start.saturating_add(length);
        let file = Arc::new(pages.file.part(left.end, pages.ahead));
        Ok(Self {
            inner: SerializedPageReader::new(Arc::clone(&file), chunk, rows, None)?,
            file,
            budget: Arc::clone(&pages.budget),
            left,
            compression: chunk.compression(),
            is_text: chunk.column_type() == Type::BYTE_ARRAY,
            levels,
            dictionary: 0,
            page: 0,
            rows: match levels[0] {
                0 => None,
                levels => Some(Rows::new(levels, pages.batch, &pages.budget)?),
            },
        })
    }

    /// Measures the page that comes next, without its content. `None` at the end.
    fn measure(&mut self) -> Result<Option<Measured>> {
        while !self.left.is_empty() {
            let header = Header::read(self.file.get_read(self.left.start)?)?;
            let start = self.left.start.saturating_add(header.length);
            self.left.start = start.saturating_add(header.compressed);
            if header.is_index() {
                continue;
            }
            self.budget.check(header.uncompressed.max(header.compressed))?;
            if header.is_compressed {
                self.check_size(&header, start)?;
            }
            return Ok(Some(Measured {
                bytes: header.uncompressed,
                start,
                length: header.compressed,
            }));
        }
        Ok(None)
    }

    /// Decompresses a page without keeping it, where the library does not end at the declared size.
    fn check_size(&self, header: &Header, start: u64) -> io::Result<()> {
        let compressed = header.compressed.saturating_sub(header.levels);
        let declared = header.uncompressed.saturating_sub(header.levels);
        let input = self.file.get_read(start.saturating_add(header.levels))?;
        let mut input = BufReader::new(input.take(compressed));
        let decoder: Box<dyn Read> = match self.compression {
            Compression::GZIP(_) => Box::new(MultiGzDecoder::new(input)),
            Compression::BROTLI(_) => Box::new(BrotliDecoder::new(input, BUFFER)),
            Compression::LZ4 if input.fill_buf()?.starts_with(&LZ4_FRAME) => {
                Box::new(FrameDecoder::new(input))
            }
            _ => return Ok(()),
        };
        let found = io::copy(&mut decoder.take(declared.saturating_add(1)), &mut io::sink())?;
        match found > declared {
            true => Err(io::Error::other("a page is larger than its header declares")),
            false => Ok(()),
        }
    }

    /// Checks what the page takes when it is decoded, and counts it as the current one.
    fn admit(&mut self, page: &Page, bytes: u64) -> Result<()> {
        if let Page::DictionaryPage { buf, num_values, .. } = page {
            if *num_values as usize > buf.len() {
                return Err(ParquetError::General("a dictionary ends early".to_owned()));
            }
            return self.budget.replace(&mut self.dictionary, bytes, self.is_text);
        }
        if !ENCODINGS.contains(&page.encoding()) {
            let message = format!("pages with the encoding {} are not read", page.encoding());
            return Err(ParquetError::NYI(message));
        }
        if let Some(rows) = &mut self.rows {
            rows.add(page)?;
        }
        let bytes = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => {
                bytes.saturating_add(delta::decoded(page, self.levels, &self.budget)?)
            }
            _ => bytes,
        };
        self.budget.replace(&mut self.page, bytes, self.is_text)
    }
}

impl PageReader for Chunk {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(Measured { bytes, start, length }) = self.measure()? else { return Ok(None) };
        self.file.expect(start, length)?;
        let page = self.inner.get_next_page()?;
        if let Some(page) = &page {
            self.admit(page, bytes)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.measure()?;
        self.inner.skip_next_page()
    }
}

impl Iterator for Chunk {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.budget.release(self.dictionary, self.is_text);
        self.budget.release(self.page, self.is_text);
    }
}
