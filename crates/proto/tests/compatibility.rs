//! Guards the compatibility of outrigger.v1: every name, number and type in the committed
//! descriptor set, proto/outrigger.v1.binpb, must still exist.
//!
//! Additions are permitted; run this test with `UPDATE=1` to publish them.

use std::{collections::BTreeMap, env, fs};

use outrigger_proto::outrigger::v1::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/outrigger.v1.binpb");

/// Everything that a client can depend on: a path, and a description of its type.
fn surface(set: &[u8]) -> BTreeMap<String, String> {
    let set = FileDescriptorSet::decode(set).expect("a descriptor set");
    let mut surface = BTreeMap::new();
    for file in set.file.iter().filter(|file| file.package() == "outrigger.v1") {
        for message in &file.message_type {
            add_message(&mut surface, "", message);
        }
        for enumeration in &file.enum_type {
            add_enum(&mut surface, "", enumeration);
        }
        for service in &file.service {
            for method in &service.method {
                let streams = (method.client_streaming(), method.server_streaming());
                let what =
                    format!("{} -> {} {streams:?}", method.input_type(), method.output_type());
                surface.insert(format!("{}/{}", service.name(), method.name()), what);
            }
        }
    }
    surface
}

fn add_message(surface: &mut BTreeMap<String, String>, outer: &str, message: &DescriptorProto) {
    let path = format!("{outer}{}", message.name());
    for field in &message.field {
        let oneof = field.oneof_index.map(|index| message.oneof_decl[index as usize].name());
        let what = format!(
            "{} {:?} {:?} {} {oneof:?}",
            field.name(),
            field.label(),
            field.r#type(),
            field.type_name()
        );
        surface.insert(format!("{path}.{}", field.number()), what);
    }
    for nested in &message.nested_type {
        add_message(surface, &format!("{path}."), nested);
    }
    for nested in &message.enum_type {
        add_enum(surface, &format!("{path}."), nested);
    }
}

fn add_enum(
    surface: &mut BTreeMap<String, String>,
    outer: &str,
    enumeration: &EnumDescriptorProto,
) {
    for value in &enumeration.value {
        let path = format!("{outer}{}.{}", enumeration.name(), value.number());
        surface.insert(path, value.name().to_owned());
    }
}

#[test]
fn the_published_interface_stays() {
    if env::var_os("UPDATE").is_some() {
        fs::write(COMMITTED, FILE_DESCRIPTOR_SET).expect("writing the descriptor set");
    }
    let published = surface(&fs::read(COMMITTED).expect("the committed descriptor set"));
    let present = surface(FILE_DESCRIPTOR_SET);
    assert!(published.len() > 100, "the committed set is not outrigger.v1's");
    for (path, what) in &published {
        assert_eq!(Some(what), present.get(path), "{path} was published and must stay");
    }
    let new: Vec<_> = present.keys().filter(|path| !published.contains_key(*path)).collect();
    assert!(new.is_empty(), "not in proto/outrigger.v1.binpb yet (run with UPDATE=1): {new:?}");
}
