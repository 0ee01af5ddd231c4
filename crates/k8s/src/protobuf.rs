//! Objects in Kubernetes' own binary form, read into the same types as their JSON.
//!
//! What is not wanted of an object is most of it, and is passed over by its length. In JSON every letter of it would have to
//! be looked at.
//!
//! ```text
//!   answer:  "k8s\0" Unknown { typeMeta { apiVersion, kind }, raw: the object }
//!   watch:   (length, WatchEvent { type, object { raw: an answer as above } }) *
//! ```

mod schema;

use std::borrow::Cow;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use schema::{Field, Kind, Message};

/// What an answer in this form begins with.
const MAGIC: &[u8] = b"k8s\0";
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The name of this form in a request.
pub(crate) const ACCEPTED: &str = "application/vnd.kubernetes.protobuf, application/json";
/// The beginning of its name in an answer.
pub(crate) const NAME: &str = "application/vnd.kubernetes.protobuf";

/// Whether an answer is in this form.
pub(crate) fn is_one(answer: &[u8]) -> bool {
    answer.starts_with(MAGIC)
}

/// Reads an answer.
pub(crate) fn answer<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    T::deserialize(Object::enveloped(bytes)?)
}

/// Reads an event of a watch.
pub(crate) fn event<'de, T: Deserialize<'de>>(frame: &'de [u8]) -> Result<T, Error> {
    T::deserialize(Object { raw: frame, message: &schema::EVENT, types: None })
}

/// What has not been read yet.
#[derive(Debug, Clone, Copy)]
struct Cursor<'de>(&'de [u8]);

impl<'de> Cursor<'de> {
    fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0_u64;
        for (index, byte) in self.0.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(number);
            }
        }
        Err(Error::custom("a number does not end"))
    }

    fn take(&mut self, length: u64) -> Result<&'de [u8], Error> {
        let taken = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = taken.ok_or_else(|| Error::custom("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes(&mut self) -> Result<&'de [u8], Error> {
        let length = self.varint()?;
        self.take(length)
    }

    fn text(&mut self) -> Result<Cow<'de, str>, Error> {
        self.bytes().map(text)
    }

    /// The number of the next field, and how it is written.
    fn tag(&mut self) -> Result<(u64, u64), Error> {
        let tag = self.varint()?;
        Ok((tag >> 3, tag & 7))
    }

    fn skip(&mut self, form: u64) -> Result<(), Error> {
        match form {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            BYTES => self.bytes().map(drop),
            FIXED32 => self.take(4).map(drop),
            _ => Err(Error::custom("a field is written in an unknown way")),
        }
    }

    /// Goes past the tag of a further element of the same field, if one follows.
    fn is_followed_by(&mut self, number: u64) -> Result<bool, Error> {
        let mut ahead = *self;
        let follows = !ahead.0.is_empty() && ahead.tag()? == (number, BYTES);
        if follows {
            *self = ahead;
        }
        Ok(follows)
    }
}

/// An API server keeps whatever bytes a client calls a text, and repairs them only for JSON, in just this way. A single
/// object must not make a whole list unreadable.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The field of this number, as bytes; empty if there is none.
fn part(message: &[u8], wanted: u64) -> Result<&[u8], Error> {
    let mut cursor = Cursor(message);
    let mut found: &[u8] = &[];
    while !cursor.0.is_empty() {
        match cursor.tag()? {
            (number, BYTES) if number == wanted => found = cursor.bytes()?,
            (_, form) => cursor.skip(form)?,
        }
    }
    Ok(found)
}

/// A message, and for an object that came with its kind also that.
struct Object<'de> {
    raw: &'de [u8],
    message: &'static Message,
    types: Option<(Cow<'de, str>, Cow<'de, str>)>,
}

impl<'de> Object<'de> {
    fn enveloped(bytes: &'de [u8]) -> Result<Self, Error> {
        let unknown =
            bytes.strip_prefix(MAGIC).ok_or_else(|| Error::custom("it does not begin as it should"))?;
        let types = part(unknown, 1)?;
        let (version, kind) = (text(part(types, 1)?), text(part(types, 2)?));
        let message = schema::of(&kind)
            .ok_or_else(|| Error::custom(format_args!("nothing is known of the kind {kind:?}")))?;
        Ok(Self { raw: part(unknown, 2)?, message, types: Some((version, kind)) })
    }
}

impl<'de> Deserializer<'de> for Object<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let types = self.types.map(|(version, kind)| [("kind", kind), ("apiVersion", version)]);
        let types = types.into_iter().flatten().collect();
        visitor.visit_map(Fields { rest: Cursor(self.raw), message: self.message, types, next: Next::None })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

/// The fields of a message, one after the other.
struct Fields<'de> {
    rest: Cursor<'de>,
    message: &'static Message,
    /// What is told of an object before its own fields, the last first.
    types: Vec<(&'static str, Cow<'de, str>)>,
    next: Next<'de>,
}

/// The value that comes next. Its tag has been read.
enum Next<'de> {
    None,
    Type(Cow<'de, str>),
    Field(&'static Field),
}

impl Fields<'_> {
    /// Goes to the next field that is wanted and is there. Kubernetes writes texts also if they are empty, where its JSON
    /// leaves them out; and a time that is none.
    fn find(&mut self) -> Result<Option<&'static Field>, Error> {
        while !self.rest.0.is_empty() {
            let (number, form) = self.rest.tag()?;
            let field = self.message.0.iter().find(|field| field.number == number && field.form() == form);
            match field {
                Some(field) if field.may_be_empty() || self.rest.0.first() != Some(&0) => {
                    return Ok(Some(field));
                }
                None | Some(_) => self.rest.skip(form)?,
            }
        }
        Ok(None)
    }
}

impl Field {
    fn form(&self) -> u64 {
        match self.kind {
            Kind::Whole => VARINT,
            Kind::Text | Kind::Time | Kind::Texts | Kind::One(_) | Kind::Many(_) | Kind::Object => BYTES,
        }
    }

    fn may_be_empty(&self) -> bool {
        match self.kind {
            Kind::Text | Kind::Time => false,
            Kind::Whole | Kind::Texts | Kind::One(_) | Kind::Many(_) | Kind::Object => true,
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let name = if let Some((name, text)) = self.types.pop() {
            self.next = Next::Type(text);
            name
        } else {
            let Some(field) = self.find()? else { return Ok(None) };
            self.next = Next::Field(field);
            field.name
        };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let field = match std::mem::replace(&mut self.next, Next::None) {
            Next::None => return Err(Error::custom("a value without a name")),
            Next::Type(text) => return seed.deserialize(Scalar::Text(text)),
            Next::Field(field) => field,
        };
        let rest = &mut self.rest;
        match field.kind {
            Kind::Text => seed.deserialize(Scalar::Text(rest.text()?)),
            Kind::Whole => seed.deserialize(Scalar::Whole(rest.varint()?.cast_signed())),
            Kind::Time => seed.deserialize(Scalar::Time(time(rest.bytes()?)?)),
            Kind::One(message) => seed.deserialize(Object { raw: rest.bytes()?, message, types: None }),
            Kind::Object => seed.deserialize(Object::enveloped(part(rest.bytes()?, 1)?)?),
            Kind::Many(message) => {
                seed.deserialize(Several(Elements { rest, number: field.number, message, is_first: true }))
            }
            Kind::Texts => {
                seed.deserialize(Texts { rest, number: field.number, is_first: true, text: Cow::default() })
            }
        }
    }
}

/// As JSON has it. What is beyond all calendars becomes the end of ours.
fn time(raw: &[u8]) -> Result<String, Error> {
    let (mut cursor, mut seconds) = (Cursor(raw), 0);
    while !cursor.0.is_empty() {
        match cursor.tag()? {
            (1, VARINT) => seconds = cursor.varint()?.cast_signed(),
            (_, form) => cursor.skip(form)?,
        }
    }
    let time = EPOCH.saturating_add(SignedDuration::from_secs(seconds));
    Ok(format!("{time:.0}Z"))
}

/// A value that is no message.
enum Scalar<'de> {
    Text(Cow<'de, str>),
    Whole(i64),
    Time(String),
}

impl<'de> Deserializer<'de> for Scalar<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Self::Text(Cow::Owned(text)) | Self::Time(text) => visitor.visit_string(text),
            Self::Whole(number) => match u64::try_from(number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i64(number),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => text.into_deserializer().deserialize_enum(name, variants, visitor),
            Self::Whole(_) | Self::Time(_) => Err(Error::custom("a word was expected")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// Messages of one field, which follow one another.
struct Elements<'a, 'de> {
    rest: &'a mut Cursor<'de>,
    number: u64,
    message: &'static Message,
    is_first: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if !std::mem::take(&mut self.is_first) && !self.rest.is_followed_by(self.number)? {
            return Ok(None);
        }
        let raw = self.rest.bytes()?;
        seed.deserialize(Object { raw, message: self.message, types: None }).map(Some)
    }
}

struct Several<'a, 'de>(Elements<'a, 'de>);

impl<'de> Deserializer<'de> for Several<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Texts by name: entries of one field, which follow one another.
struct Texts<'a, 'de> {
    rest: &'a mut Cursor<'de>,
    number: u64,
    is_first: bool,
    text: Cow<'de, str>,
}

impl<'de> MapAccess<'de> for Texts<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if !std::mem::take(&mut self.is_first) && !self.rest.is_followed_by(self.number)? {
            return Ok(None);
        }
        let entry = self.rest.bytes()?;
        self.text = text(part(entry, 2)?);
        seed.deserialize(Scalar::Text(text(part(entry, 1)?))).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Scalar::Text(std::mem::take(&mut self.text)))
    }
}

impl<'de> Deserializer<'de> for Texts<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod broken;
#[cfg(test)]
pub(crate) mod tests;
