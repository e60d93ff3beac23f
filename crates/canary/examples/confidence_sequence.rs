//! Draws the narrowing of a confidence sequence as SVG:
//!
//! ```console
//! $ cargo run -p outrigger-canary --example confidence_sequence > docs/canary.svg
//! ```

#![allow(missing_docs)]

use std::{fmt::Write as _, sync::Arc, time::Duration};

use outrigger_canary::{
    Arm, Config, Decider, Decision, Reference, Share, Signal, Statistics,
    simulation::{Effect, Generated, Live, Traffic},
};

const WIDTH: f64 = 860.0;
const PANEL: f64 = 250.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Range of the horizontal axis, which is logarithmic: requests on the canary.
const FROM: f64 = 50.0;
const TO: f64 = 20_000.0;

/// Range of the vertical axis: difference of the error rates, in percent.
const LEAST: f64 = -4.0;
const MOST: f64 = 8.0;

/// The confidence interval after `canary` requests on the canary.
struct Look {
    canary: u64,
    estimate: f64,
    lower: f64,
    upper: f64,
}

/// A trial from the first request to the verdict.
struct Course {
    looks: Vec<Look>,
    decision: Decision,
    margin: f64,
}

fn main() {
    let courses = [
        ("3% errors against live's 1%", course(0.02 / 0.99)),
        ("a canary like live, 1% errors", course(0.0)),
    ];
    let height = PANEL * courses.len() as f64;
    println!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">"#
    );
    println!(r##"<rect width="{WIDTH}" height="{height}" fill="#fff"/>"##);
    for (at, (title, course)) in courses.iter().enumerate() {
        println!(
            r#"<g transform="translate(0 {})">{}</g>"#,
            at as f64 * PANEL,
            panel(title, course)
        );
    }
    println!("</svg>");
}

/// Runs a trial of a canary that fails a share `errors` of the requests that live
/// answers.
fn course(errors: f64) -> Course {
    let decider = Decider::new(Config::default());
    let share = Share::new(0.1).expect("between 0 and 1");
    let effect = Effect { errors, ..Effect::NONE };
    let mut traffic = Traffic::new(share, Live::Generated(Generated::default()), effect, 7);
    let reference = Reference::new(&traffic.before(Reference::REQUESTS), 0.95);
    let mut statistics = Statistics::new(Arc::new(reference));
    let (mut looks, mut next) = (Vec::new(), FROM);
    loop {
        let seen = traffic.request();
        statistics.record(share, &seen);
        if seen.arm != Arm::Canary {
            continue;
        }
        let canary = statistics.requests().1;
        let decision = decider.decide(&statistics, Duration::from_secs(3600));
        let over = decision != Decision::Continue || canary as f64 >= TO;
        if over || canary as f64 >= next {
            let verdict = decider.verdict(&statistics, Duration::from_secs(3600));
            let errors = verdict.findings.iter().find(|found| found.signal == Signal::ErrorRate);
            let errors = errors.expect("it is watched");
            let [estimate, lower, upper] =
                [errors.difference, errors.lower, errors.upper].map(|value| 100.0 * value);
            looks.push(Look { canary, estimate, lower, upper });
            next = canary as f64 * 1.04;
            if over {
                return Course { looks, decision, margin: 100.0 * errors.margin };
            }
        }
    }
}

fn panel(title: &str, course: &Course) -> String {
    let mut svg = String::new();
    let mut draw = |element: String| writeln!(svg, "{element}").expect("a string takes all");
    for percent in (-4..=8).step_by(2) {
        let at = y(f64::from(percent));
        draw(line((x(FROM), at), (x(TO), at), if percent == 0 { "#555" } else { "#ddd" }));
        draw(text(LEFT - 8.0, at + 4.0, "end", &format!("{percent}%")));
    }
    for requests in [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0] {
        draw(line((x(requests), y(LEAST)), (x(requests), y(LEAST) + 4.0), "#555"));
        draw(text(x(requests), y(LEAST) + 17.0, "middle", &requests.to_string()));
    }
    let bound =
        |bound: fn(&Look) -> f64| course.looks.iter().map(move |look| point(look, bound(look)));
    let band: Vec<String> =
        bound(|look| look.upper).chain(bound(|look| look.lower).rev()).collect();
    draw(format!(r##"<polygon points="{}" fill="#9ecae1" fill-opacity="0.6"/>"##, band.join(" ")));
    let estimate: Vec<String> = bound(|look| look.estimate).collect();
    draw(format!(
        r##"<polyline points="{}" fill="none" stroke="#08519c" stroke-width="1.5"/>"##,
        estimate.join(" ")
    ));
    let margin = y(course.margin);
    draw(line((x(FROM), margin), (x(TO), margin), "#d94801"));
    draw(text(x(TO), margin - 4.0, "end", &format!("margin {:+}%", course.margin)));
    if let Some(last) = course.looks.last() {
        let at = x(last.canary as f64);
        draw(line((at, y(MOST)), (at, y(LEAST)), "#000"));
        let verdict = format!("{} after {}", course.decision, last.canary);
        draw(text(at + 6.0, y(MOST) + 12.0, "start", &verdict));
    }
    draw(text(LEFT, 20.0, "start", &format!("Difference of the error rates: {title}")));
    draw(text(x(TO), PANEL - 8.0, "end", "requests on the canary"));
    svg
}

fn x(requests: f64) -> f64 {
    LEFT + (requests / FROM).ln() / (TO / FROM).ln() * (WIDTH - LEFT - RIGHT)
}

fn y(percent: f64) -> f64 {
    let height = PANEL - TOP - BOTTOM;
    TOP + (MOST - percent.clamp(LEAST, MOST)) / (MOST - LEAST) * height
}

fn point(look: &Look, percent: f64) -> String {
    format!("{:.1},{:.1}", x(look.canary as f64), y(percent))
}

fn line((x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) -> String {
    format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#)
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#)
}
