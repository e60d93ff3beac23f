//! The log of `outrigger dev`: one stream on standard output for all parts, one line per event, with
//! time (UTC), part and level.

use std::{
    env, fmt,
    io::{self, IsTerminal as _, Write as _},
    sync::LazyLock,
    time::SystemTime,
};

use outrigger_server::log_filter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::exit::Exit;

/// The start of the targets of this command's own events.
const TARGETS: [&str; 2] = ["outrigger::dev", "outrigger_tools::dev"];

/// True if the log has colours: on a terminal, unless the user wants none (`NO_COLOR`).
static COLOURS: LazyLock<bool> = LazyLock::new(|| {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
});

/// A part of the system, by the name and the colour of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part(&'static str, Colour);

/// The number of a colour in an escape sequence.
type Colour = u8;

const DEV: Part = Part("dev", 32);
const SERVE: Part = Part("serve", 36);
const ENGINE: Part = Part("engine", 35);

/// Sends the events of this process to the log, by the filter `level`.
pub(super) fn start(level: &str) -> Result<(), Exit> {
    let filter = log_filter(level).map_err(|error| Exit::Usage(format!("log.level: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .event_format(Format)
        .with_writer(io::stdout)
        .try_init()
        .map_err(Exit::failed)
}

/// Writes a line of the engine's log.
pub(super) fn engine_line(line: &str) {
    let Parsed { time, level, text } = Parsed::of(line);
    let time = time.map_or_else(now, str::to_owned);
    let mut formatted = String::new();
    write_line(&mut formatted, &time, ENGINE, level, text).expect("writing to a string");
    // A closed output is not a failure of the engine.
    let _ = io::stdout().lock().write_all(formatted.as_bytes());
}

/// The format of this process's events.
struct Format;

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let own = TARGETS.iter().any(|target| metadata.target().starts_with(target));
        let part = if own { DEV } else { SERVE };
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        write_line(&mut writer, &now(), part, Some(*metadata.level()), &text)
    }
}

/// Writes a line. Line breaks and other control characters in `text` are escaped.
fn write_line(
    to: &mut impl fmt::Write,
    time: &str,
    Part(name, colour): Part,
    level: Option<Level>,
    text: &str,
) -> fmt::Result {
    write!(to, "{time} {} ", coloured(&format!("{name:6}"), Some(colour)))?;
    let shown = level.map(|level| level.to_string()).unwrap_or_default();
    write!(to, "{} ", coloured(&format!("{shown:5}"), level.and_then(level_colour)))?;
    for character in text.chars() {
        match character {
            '\t' => to.write_char(' ')?,
            control if control.is_control() => write!(to, "{}", control.escape_default())?,
            other => to.write_char(other)?,
        }
    }
    to.write_char('\n')
}

fn level_colour(level: Level) -> Option<Colour> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        _ => None,
    }
}

fn coloured(text: &str, colour: Option<Colour>) -> String {
    match colour {
        Some(colour) if *COLOURS => format!("\x1b[{colour}m{text}\x1b[0m"),
        _ => text.to_owned(),
    }
}

/// The time of day with milliseconds.
fn now() -> String {
    let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    time_of_day(&now).expect("it is a timestamp").to_owned()
}

/// The time of day of a timestamp, with milliseconds: `2026-11-26T02:25:48.228669Z`.
fn time_of_day(timestamp: &str) -> Option<&str> {
    let (_, time) = timestamp.strip_suffix('Z')?.split_once('T')?;
    let is_time = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    time.get(.."00:00:00.000".len()).filter(|time| time.bytes().all(is_time))
}

/// A line of the local engine's log, or of another program's, which has neither time nor level.
#[derive(Debug, PartialEq)]
struct Parsed<'a> {
    time: Option<&'a str>,
    level: Option<Level>,
    text: &'a str,
}

impl<'a> Parsed<'a> {
    /// Parses `TIMESTAMP LEVEL TARGET: TEXT`.
    fn of(line: &'a str) -> Self {
        Self::parse(line).unwrap_or(Self { time: None, level: None, text: line })
    }

    fn parse(line: &'a str) -> Option<Self> {
        let (timestamp, rest) = line.split_once(' ')?;
        let (level, rest) = rest.trim_start().split_once(' ')?;
        let (_, text) = rest.split_once(": ")?;
        let time = Some(time_of_day(timestamp)?);
        Some(Self { time, level: Some(level.parse().ok()?), text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_local_engine_has_its_own_time_and_level() {
        let line = "2026-11-26T02:25:48.657783Z  WARN outrigger_engine::server: a: problem x=1";
        let (time, level) = (Some("02:25:48.657"), Some(Level::WARN));
        assert_eq!(Parsed::of(line), Parsed { time, level, text: "a: problem x=1" });
        for other in ["I0000 00:00:1795659948.239944 15273 port.cc:153] on: off", "", "T Z: "] {
            assert_eq!(Parsed::of(other), Parsed { time: None, level: None, text: other });
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let mut line = String::new();
        let text = "a\n02:00:00.000 serve\r\x1b[31mforged\tü";
        write_line(&mut line, "02:25:48.657", SERVE, Some(Level::INFO), text).unwrap();
        let expected = "02:25:48.657 serve  INFO  a\\n02:00:00.000 serve\\r\\u{1b}[31mforged ü\n";
        assert_eq!(line, expected);
    }
}
