//! Plans, which stay in memory as long as their versions are loaded.

use std::fmt::Write as _;

use outrigger_features::{Metadata, Plan};

use crate::kept;

/// A metadata.json with these features of the user.
fn metadata(features: &str) -> String {
    format!(
        r#"{{"schema":"outrigger.dev/model/v1","framework":"tensorflow","inputs":[{{"tensor":"x","entity":"user","dtype":"int64","features":[{features}]}}],"outputs":[{{"tensor":"s","name":"s","kind":"single"}}]}}"#
    )
}

/// `count` items, each with another number, separated by commas.
fn list(count: usize, item: impl Fn(&mut String, usize)) -> String {
    let mut list = String::new();
    for index in 0..count {
        if index > 0 {
            list.push(',');
        }
        item(&mut list, index);
    }
    list
}

#[test]
fn a_plan_takes_no_more_than_it_is_charged_for() {
    let word = |list: &mut String, index: usize| write!(list, "\"{index:x}\"").expect("text");
    let feature = |list: &mut String, index: usize| {
        write!(list, r#"{{"name":"{index:x}","default":0}}"#).expect("text");
    };
    let vocabulary = |count| {
        let words = list(count, word);
        metadata(&format!(
            r#"{{"name":"a","vocabulary":[{words}],"out_of_vocabulary":0,"required":true}}"#
        ))
    };
    let notes = format!(
        r#"{},"annotations":{{"a":[{}]}}}}"#,
        metadata(&list(2, feature)).trim_end_matches('}'),
        list(300_000, |list, _| list.push('1'))
    );
    let many = [metadata(&list(20_000, feature)), vocabulary(200_000), notes];
    for text in many.into_iter().chain([metadata(&list(2, feature))]) {
        let (plan, memory) =
            kept(|| Plan::compile(Metadata::parse(text.as_bytes()).expect("valid")));
        let size = text.len() as u64;
        let (charged, most) = (plan.memory(size), Plan::most_memory(size));
        assert!(memory as u64 <= charged, "{memory} bytes of {charged} for {size}");
        assert!(charged <= most, "{charged} of {most} for {size}");
        drop(plan);
    }
}
