//! Requests in JSON, packed in one pass and by way of their protobuf form.

use std::sync::LazyLock;

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_features::{Limits, Metadata, Packed, Plan, Request, json, metadata::Entity};

use super::{
    entropy::Entropy,
    models::{self, Sent, Taste, WORDS},
};

/// Draws a model and a request for it from `bytes`; packs it both ways.
pub(crate) fn generated(bytes: &[u8]) {
    let mut entropy = Entropy::new(bytes);
    let metadata = models::metadata(&mut entropy);
    let mut body = Body::new(entropy.below(4)).request(&metadata, &mut entropy).into_bytes();
    if entropy.chance(60) {
        damage(&mut body, &mut entropy);
    }
    let limits = match entropy.chance(12) {
        true => Limits { max_treatments: 4, max_users: 2, max_tensor_bytes: 400 },
        false => Limits::default(),
    };
    both(&Plan::compile(metadata), &body, &limits);
}

/// Packs bytes as a request of a model that uses every option.
pub(crate) fn raw(bytes: &[u8]) {
    static PLAN: LazyLock<Plan> = LazyLock::new(models::everything);
    both(&PLAN, bytes, &Limits::default());
}

/// Text as it is, or a request drawn from bytes that begin with a zero.
pub(crate) fn any(bytes: &[u8]) {
    match bytes {
        [0, bytes @ ..] => generated(bytes),
        text => raw(text),
    }
}

fn damage(body: &mut Vec<u8>, entropy: &mut Entropy<'_>) {
    let at = entropy.u64() as usize % body.len();
    match entropy.below(5) {
        0 => body.truncate(at),
        1 => drop(body.remove(at)),
        2 => body.insert(at, entropy.one_of(b"{}[]\",:0-.e\\ \x01\xff")),
        _ => body[at] = entropy.byte(),
    }
}

fn both(plan: &Plan, body: &[u8], limits: &Limits) {
    let request = json::Request::read(Bytes::copy_from_slice(body));
    if let (Ok(request), Ok(expected)) = (&request, json::selector(body)) {
        let found = request.routing();
        assert_eq!(found.model, Some(&expected.model));
        assert_eq!(
            (found.request_id, found.routing_key),
            (&*expected.request_id, &*expected.routing_key)
        );
    }
    let found = request.and_then(|request| plan.pack_json(&request, limits));
    match (found, encoded(plan, body, limits)) {
        // A request that is too large is refused before the rest of it is read.
        (Err(found), Err(_))
            if matches!(found.reason, Reason::TooManyTreatments | Reason::TooLarge) => {}
        (found, expected) => assert_eq!(found, expected, "{}", String::from_utf8_lossy(body)),
    }
}

fn encoded(plan: &Plan, body: &[u8], limits: &Limits) -> Result<Packed, Failure> {
    json::selector(body)?;
    let encoded = Bytes::from(json::encode_request(plan, body)?);
    plan.pack_request(&Request::read(&encoded, limits)?)
}

/// A body while it is written.
struct Body {
    text: String,
    /// The white space around every token.
    space: &'static str,
    /// How often something unusual is written, of 256.
    odd: u16,
}

impl Body {
    fn new(style: usize) -> Self {
        let (space, odd) = [("", 0), ("", 4), (" ", 4), ("\n\t", 30)][style];
        Self { text: String::new(), space, odd }
    }

    fn put(&mut self, token: &str) {
        self.text.push_str(self.space);
        self.text.push_str(token);
    }

    fn odd(&self, entropy: &mut Entropy<'_>) -> bool {
        self.odd > 0 && entropy.chance(self.odd)
    }

    fn request(mut self, metadata: &Metadata, entropy: &mut Entropy<'_>) -> String {
        let mut keys = vec!["model", "request_id", "user", "treatments", "routing_key", "options"];
        keys.truncate(4 + entropy.below(3));
        if entropy.chance(128) {
            entropy.shuffle(&mut keys);
        }
        if self.odd(entropy) {
            keys.push(entropy.one_of(&["model", "what", "treatments", "request_id", "Options"]));
        }
        self.object(&keys, entropy, |this, key, entropy| match *key {
            "model" => this.put(entropy.one_of(&[
                r#"{"name":"m"}"#,
                r#"{"name":"m","tag":"t"}"#,
                r#"{ "name" : "m", "tag":null}"#,
                r#"{"name":"m","digest":"d"}"#,
            ])),
            "user" => this.features(&models::features(metadata, Entity::User), entropy),
            "treatments" => {
                this.treatments(&models::features(metadata, Entity::Treatment), entropy)
            }
            "options" => this.options(entropy),
            _ => this.put(entropy.one_of(&[r#""r-1""#, "null", r#""\u00e4\"é""#, r#""""#])),
        });
        self.text
    }

    fn object<T>(
        &mut self,
        members: &[T],
        entropy: &mut Entropy<'_>,
        mut write: impl FnMut(&mut Self, &T, &mut Entropy<'_>),
    ) where
        T: AsRef<str>,
    {
        self.put("{");
        for (index, member) in members.iter().enumerate() {
            if index > 0 {
                self.put(",");
            }
            self.string(member.as_ref(), entropy);
            self.put(":");
            write(self, member, entropy);
        }
        self.put("}");
    }

    fn string(&mut self, text: &str, entropy: &mut Entropy<'_>) {
        let mut quoted = serde_json::Value::from(text).to_string();
        if self.odd(entropy) && !text.is_empty() {
            let first = text.chars().next().expect("not empty");
            let escaped = format!("\\u{:04x}", u32::from(first));
            quoted = format!("\"{escaped}{}", &quoted[1 + first.len_utf8()..]);
        }
        self.put(&quoted);
    }

    fn options(&mut self, entropy: &mut Entropy<'_>) {
        self.put(entropy.one_of(&[
            "null",
            "{}",
            r#"{"treatment_ids":false}"#,
            r#"{"on_treatment_error":"skip"}"#,
            r#"{"on_treatment_error":"skip","top_k":2}"#,
            r#"{"top_k":1.0,"outputs":["other"]}"#,
            r#"{"outputs":["no"]}"#,
            r#"{"outputs":[1]}"#,
            r#"{"top_k":-1}"#,
            r#"{"k":1}"#,
            "7",
        ]));
    }

    fn treatments(&mut self, features: &[Sent], entropy: &mut Entropy<'_>) {
        if self.odd(entropy) {
            return self.put(entropy.one_of(&["null", "{}", "[null]", "[[]]", "7", "[{},]"]));
        }
        let alike = entropy.chance(128);
        let mut order = features.to_vec();
        self.put("[");
        for index in 0..entropy.below(10) {
            if index > 0 {
                self.put(",");
            }
            if !alike {
                entropy.shuffle(&mut order);
            }
            self.treatment(&order, alike, entropy);
        }
        self.put("]");
    }

    fn treatment(&mut self, features: &[Sent], alike: bool, entropy: &mut Entropy<'_>) {
        let mut keys = if alike { vec!["features", "id"] } else { vec!["id", "features"] };
        if self.odd(entropy) {
            keys.push(entropy.one_of(&["id", "features", "ID", "x"]));
        } else if entropy.chance(30) {
            keys.remove(entropy.below(2));
        }
        self.object(&keys, entropy, |this, key, entropy| match *key {
            "features" => this.features(features, entropy),
            _ => this
                .put(entropy.one_of(&[r#""a""#, r#""b-2""#, r#""""#, r#""\n""#, r#""é""#, "null"])),
        });
    }

    fn features(&mut self, features: &[Sent], entropy: &mut Entropy<'_>) {
        if self.odd(entropy) {
            return self.put(entropy.one_of(&["null", "[]", "7", "{}"]));
        }
        let mut names: Vec<_> = features.iter().map(|sent| sent.name.clone()).collect();
        if self.odd > 0 && entropy.chance(30) && !names.is_empty() {
            names.remove(entropy.below(names.len()));
        }
        if entropy.chance(60) {
            names.push(
                entropy
                    .one_of(&["x", "profile", "", "a_name_longer_than_all_features_have"])
                    .to_owned(),
            );
        }
        if self.odd(entropy) {
            names.extend(names.first().cloned());
        }
        self.object(&names, entropy, |this, name, entropy| {
            let sent = features.iter().find(|sent| sent.name == *name);
            match (name.as_str(), sent) {
                ("profile", _) => this.nested(entropy),
                (_, Some(sent)) => this.value(sent, entropy),
                _ => this.unknown(entropy),
            }
        });
    }

    /// An object whose leaf `age` some models name.
    fn nested(&mut self, entropy: &mut Entropy<'_>) {
        let keys = entropy.one_of(&[&["age"][..], &["age", "x"], &["x", "y"], &[]]);
        self.object(keys, entropy, |this, _, entropy| match entropy.below(4) {
            1 => this.unknown(entropy),
            2 => this.nested(entropy),
            _ => this.put("30"),
        });
    }

    fn unknown(&mut self, entropy: &mut Entropy<'_>) {
        self.put(entropy.one_of(&[
            "1",
            "null",
            "true",
            r#""text""#,
            r#""\ud83d\ude00""#,
            "[1,[2],{\"a\":null}]",
            "{}",
            r#"{"a":{"b":1,"c":[]}}"#,
            "-0.0",
            "[]",
            "1e400",
            r#""\ud83d""#,
            "[1e400]",
        ]));
    }

    fn value(&mut self, sent: &Sent, entropy: &mut Entropy<'_>) {
        if self.odd(entropy) {
            return self.odd_value(sent, entropy);
        }
        if sent.length == 1 && !sent.list {
            return self.scalar(sent.taste, entropy);
        }
        let length = sent.draw_length(entropy);
        if matches!(sent.taste, Taste::Id | Taste::Name) && entropy.chance(128) {
            return self.sparse(sent, length, entropy);
        }
        self.list(sent, length, entropy);
    }

    fn list(&mut self, sent: &Sent, length: usize, entropy: &mut Entropy<'_>) {
        self.put("[");
        for index in 0..length {
            if index > 0 {
                self.put(",");
            }
            self.scalar(sent.taste, entropy);
        }
        self.put("]");
    }

    fn sparse(&mut self, sent: &Sent, length: usize, entropy: &mut Entropy<'_>) {
        let ids = if sent.taste == Taste::Name { "names" } else { "ids" };
        let mut keys = vec![ids, "weights"];
        keys.truncate(1 + entropy.below(2));
        if self.odd(entropy) {
            keys.push(entropy.one_of(&["ids", "names", "weights", "id"]));
        }
        self.object(&keys, entropy, |this, key, entropy| {
            if this.odd(entropy) {
                return this.unknown(entropy);
            }
            let taste = if *key == "weights" { Taste::Number } else { sent.taste };
            this.list(&Sent { taste, ..sent.clone() }, length, entropy);
        });
    }

    fn odd_value(&mut self, sent: &Sent, entropy: &mut Entropy<'_>) {
        match entropy.below(6) {
            0 => self.put("null"),
            1 => self.list(sent, entropy.below(5), entropy),
            2 => self.unknown(entropy),
            3 => self.put(entropy.one_of(&[
                "[1,\"a\"]",
                "[true,1]",
                "[null]",
                "[1,2.5,9007199254740993]",
                "[9007199254740993,1]",
            ])),
            4 => self.scalar(
                entropy.one_of(&[Taste::Number, Taste::Integer, Taste::Flag, Taste::Text]),
                entropy,
            ),
            _ => self.put(entropy.one_of(&[
                "1e39",
                "-1e39",
                "1e308",
                "1e-50",
                "18446744073709551615",
                "9223372036854775808",
                "-9223372036854775809",
                "3e0",
            ])),
        }
    }

    fn scalar(&mut self, taste: Taste, entropy: &mut Entropy<'_>) {
        let text = match taste {
            Taste::Number => match entropy.below(5) {
                0 => entropy.byte().to_string(),
                1 => f64::from_bits(entropy.u64() >> 2).to_string(),
                2 => format!("{:e}", f32::from_bits(entropy.u64() as u32 & 0x5fff_ffff)),
                3 => format!("-{}.{}", entropy.byte(), entropy.u64()),
                _ => format!("{}.{}", entropy.byte(), entropy.byte()),
            },
            Taste::Integer => match entropy.below(4) {
                0 => entropy.u64().cast_signed().to_string(),
                1 => entropy.one_of(&["7", "-1", "1.0", "7e0", "-0"]).to_owned(),
                2 => return self.string(entropy.one_of(&WORDS), entropy),
                _ => entropy.byte().to_string(),
            },
            Taste::Flag => entropy.one_of(&["true", "false", "0", "1", "1.0", "2"]).to_owned(),
            Taste::Id => match entropy.below(3) {
                0 => entropy.u64().to_string(),
                1 => entropy.one_of(&["7", "-1", "1.0", "18446744073709551615", "1e3"]).to_owned(),
                _ => entropy.byte().to_string(),
            },
            Taste::Text | Taste::Name => return self.string(entropy.one_of(&WORDS), entropy),
        };
        self.put(&text);
    }
}
