//! The memory of requests while they are read stays within that which is charged for them.

use bytes::Bytes;
use outrigger_oip::rest::{memory, read_request};
use outrigger_testkit::allocator::{MEASURING, Reporting, measured};

#[global_allocator]
static ALLOCATOR: Reporting = MEASURING;

/// The most bytes that are held while a request is read, beside its body.
fn taken(json: &str) -> usize {
    let body = Bytes::copy_from_slice(json.as_bytes());
    let (_, memory) = measured(|| read_request(&body, None));
    memory.peak
}

fn input(name: usize, datatype: &str, elements: usize, data: &str) -> String {
    format!(r#"{{"name":"{name}","datatype":"{datatype}","shape":[{elements}],"data":[{data}]}}"#)
}

fn request(inputs: &[String]) -> String {
    format!(r#"{{"inputs":[{}]}}"#, inputs.join(","))
}

fn of_data(datatype: &str, element: &str, elements: usize) -> String {
    request(&[input(0, datatype, elements, &vec![element; elements].join(","))])
}

#[test]
fn a_request_takes_no_more_than_is_charged() {
    const MANY: usize = 50_000;
    const OBJECTS: usize = 5_000;
    let shape = vec!["1"; 32].join(",");
    let tensor =
        |name| format!(r#"{{"name":"{name}","datatype":"BOOL","shape":[{shape}],"data":[true]}}"#);
    let outputs: Vec<_> = (0..OBJECTS).map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
    let parameters: Vec<_> = (0..OBJECTS).map(|name| format!(r#""{name}":{name}"#)).collect();
    let early = r#"{"inputs":[{"data":["#.to_owned()
        + &vec!["1"; MANY].join(",")
        + r#"],"name":"x","datatype":"FP64","shape":[50000]}]}"#;
    let bodies = [
        of_data("FP64", "1", MANY),
        of_data("BOOL", "true", MANY),
        of_data("BYTES", r#""""#, MANY),
        of_data("BYTES", r#""\u00e9""#, MANY),
        of_data("BYTES", &format!("\"{}\"", "x".repeat(MANY)), 1),
        of_data("BYTES", &format!("\"\\n{}\"", "x".repeat(MANY)), 2),
        of_data("BYTES", &format!("\"{}\"", "\\n0123456789".repeat(MANY)), 1),
        format!(r#"{{"id":"\n{}","inputs":[]}}"#, "x".repeat(MANY)),
        format!(r#"{{"inputs":[{{"name":"\n{}"}}]}}"#, "x".repeat(MANY)),
        format!(r#"{{"\n{}":"\n{}","inputs":[]}}"#, "x".repeat(MANY), "\\n0".repeat(MANY)),
        request(&(0..OBJECTS).map(|name| input(name, "BOOL", 0, "")).collect::<Vec<_>>()),
        request(&(0..OBJECTS).map(tensor).collect::<Vec<_>>()),
        request(&vec!["{}".to_owned(); OBJECTS]),
        format!(r#"{{"inputs":[],"outputs":[{}]}}"#, outputs.join(",")),
        format!(r#"{{"inputs":[],"parameters":{{{}}}}}"#, parameters.join(",")),
        early,
        "{".repeat(MANY),
        "[".repeat(MANY),
    ];
    for body in bodies {
        let (taken, charged) = (taken(&body), memory(body.as_bytes()) as usize);
        let start = &body[..body.len().min(80)];
        assert!(taken <= charged, "{taken} > {charged} for {start}");
    }
}

#[test]
fn the_charge_for_floats_is_near_their_text() {
    let body = of_data("FP32", "0.1234567", 10_000);
    let (taken, charged) = (taken(&body), memory(body.as_bytes()));
    assert!(taken >= 40_000, "the test counts what is taken: {taken}");
    assert!(charged < 3 * body.len() as u64 + (40 << 10), "{charged}");
}
