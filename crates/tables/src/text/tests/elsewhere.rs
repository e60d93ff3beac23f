//! Text that is read in ranges.

use std::{io, sync::Mutex};

use bytes::Bytes;

use super::*;

/// Bytes in memory that count how they are read.
#[derive(Debug)]
struct Counted(Bytes, Mutex<Vec<(u64, usize)>>);

impl ReadAt for Counted {
    fn stat(&self) -> Stat {
        Stat { size: self.0.len() as u64, modified: 5, tag: Some("tag".to_owned()) }
    }

    fn read_at(&self, start: u64, length: usize) -> io::Result<Bytes> {
        self.1.lock().expect("not poisoned").push((start, length));
        let start = usize::try_from(start).expect("small");
        Ok(self.0.slice(start..start + length))
    }
}

#[test]
fn text_elsewhere_is_read_in_ranges_and_is_the_same() {
    let line = |id: i64| format!("{{\"id\": {id}, \"text\": \"{}\"}}\n", "a".repeat(2000));
    let lines: String = (0..20_000).map(line).collect();
    let cells: String = (0..20_000).map(|id| format!("{id},{}\n", "a".repeat(2000))).collect();
    for (format, content) in
        [(Format::Jsonl, lines), (Format::Csv, "id,text\n".to_owned() + &cells)]
    {
        let content = Bytes::from(content);
        let source = Arc::new(Counted(content.clone(), Mutex::default()));
        let bytes = Arc::<Counted>::clone(&source);
        let text = TextFile::elsewhere(bytes, Path::new("a"), format, LIMITS).expect("text");
        assert_eq!(text.stat().expect("known"), source.stat());
        let file = file(&content);
        let local = open(&file, format);
        let scan = text.scan(&all()).expect("scanned");
        assert_eq!(scan, local.scan(&all()).expect("scanned"));
        // A scan reads each byte once, in ranges that are bounded.
        let ranges = std::mem::take(&mut *source.1.lock().expect("not poisoned"));
        let mut end = 0;
        for (start, length) in &ranges {
            assert_eq!(*start, end);
            assert!(*length <= 4 << 20, "{length}");
            end += *length as u64;
        }
        assert_eq!(end, content.len() as u64);
        let index = Arc::new(scan.index);
        let columns = [column("id", Leaf::Integer, Lists::Depth(0))];
        let rows = |text: &TextFile| {
            let mut rows = text.read(&index, &[15_000..15_010, 19_999..20_000], &columns)?;
            rows.next(100)
        };
        assert_eq!(rows(&text), rows(&local));
        // Rows in the middle are read from the mark before them, and the header of CSV.
        let ranges = std::mem::take(&mut *source.1.lock().expect("not poisoned"));
        let read: usize = ranges.iter().map(|(_, length)| length).sum();
        assert!(read < 20 << 20, "{read} of {}", content.len());
    }
    let nothing = Arc::new(Counted(Bytes::new(), Mutex::default()));
    assert!(TextFile::elsewhere(nothing, Path::new("a"), Format::Parquet, LIMITS).is_err());
}
