//! The results as a page with plots, in one file without scripts.

use std::fmt::Write as _;

use crate::markup::escaped;

/// The size of a plot in pixels, and the margins around it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 34.0;

/// The colours of lines, in their order.
const COLOURS: [&str; 3] = ["#2a5fa9", "#7fa6d9", "#b3741a"];

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:24px auto;max-width:760px;padding:0 12px;\
color:#1c2127;background:#fff}h1{font-size:20px}h2{font-size:15px;margin:28px 0 4px}pre{overflow-x:auto;\
font-size:12px}svg{max-width:100%;height:auto}text{font:11px ui-monospace,monospace;fill:#68727d}\
.grid{stroke:#e6e9ec}@media(prefers-color-scheme:dark){body{color:#e3e7eb;background:#15181c}.grid{stroke:#2c333a}}";

/// One plot. Its horizontal scale is logarithmic, and for lines the vertical one, too: values of small messages are
/// hundreds of times smaller than those of large ones.
pub(super) struct Chart {
    title: String,
    unit: &'static str,
    content: Content,
}

enum Content {
    Lines(Vec<(&'static str, Vec<(f64, f64)>)>),
    Bars(Vec<(f64, f64)>),
}

impl Chart {
    /// Values by message size, one line for each name. Lines without values are left out.
    pub(super) fn lines(
        title: String,
        unit: &'static str,
        lines: Vec<(&'static str, Vec<(f64, f64)>)>,
    ) -> Self {
        let content = Content::Lines(lines);
        Self {
            title,
            unit,
            content,
        }
    }

    /// How often each value occurs.
    pub(super) fn bars(title: String, unit: &'static str, bars: Vec<(f64, f64)>) -> Self {
        let content = Content::Bars(bars);
        Self {
            title,
            unit,
            content,
        }
    }

    fn points(&self) -> Vec<(f64, f64)> {
        match &self.content {
            Content::Lines(lines) => lines.iter().flat_map(|(_, line)| line).copied().collect(),
            Content::Bars(bars) => bars.clone(),
        }
    }

    fn svg(&self) -> String {
        let scale = Scale::of(&self.points(), &self.content);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        svg += &scale.axes(self.unit, &self.content);
        match &self.content {
            Content::Bars(bars) => svg += &scale.bars(bars),
            Content::Lines(lines) => {
                let shown = lines.iter().filter(|(_, line)| !line.is_empty());
                for (index, (name, line)) in shown.enumerate() {
                    svg += &scale.line(name, line, index);
                }
            }
        }
        svg + "</svg>"
    }
}

/// Where values are in the plot.
struct Scale {
    least: f64,
    most: f64,
    upward: Upward,
}

/// The vertical scale.
enum Upward {
    Linear {
        highest: f64,
    },
    /// From one power of ten to another.
    Logarithmic {
        lowest: i32,
        highest: i32,
    },
}

impl Upward {
    fn of(values: impl Iterator<Item = f64> + Clone, content: &Content) -> Self {
        let highest = values.clone().fold(0.0, f64::max);
        match content {
            Content::Bars(_) => Self::Linear {
                highest: highest.max(1e-9),
            },
            Content::Lines(_) => {
                let above_zero = values.filter(|value| *value > 0.0);
                let lowest = above_zero.fold(highest.max(1.0), f64::min);
                let lowest = lowest.log10().floor() as i32;
                let highest = highest.max(1e-9).log10().ceil() as i32;
                Self::Logarithmic {
                    lowest,
                    highest: highest.max(lowest + 1),
                }
            }
        }
    }

    /// How high a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match *self {
            Self::Linear { highest } => value / highest,
            Self::Logarithmic { lowest, highest } => {
                let bottom = 10_f64.powi(lowest);
                (value.max(bottom) / bottom).log10() / f64::from(highest - lowest)
            }
        }
    }

    /// The values with a line and a label.
    fn labelled(&self) -> Vec<f64> {
        match *self {
            Self::Linear { highest } => {
                let quarters = (0..=4).map(|quarter| highest * f64::from(quarter) / 4.0);
                quarters.collect()
            }
            Self::Logarithmic { lowest, highest } => {
                (lowest..=highest).map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

impl Scale {
    fn of(points: &[(f64, f64)], content: &Content) -> Self {
        let xs = points.iter().map(|point| point.0.max(f64::MIN_POSITIVE));
        let least = xs.clone().fold(f64::INFINITY, f64::min);
        let least = if least.is_finite() { least } else { 1.0 };
        let most = xs.fold(least, f64::max);
        Self {
            least,
            most: most.max(least * 1.0001),
            upward: Upward::of(points.iter().map(|point| point.1), content),
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value / self.least).ln() / (self.most / self.least).ln();
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.upward.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, unit: &str, content: &Content) -> String {
        let mut svg = String::new();
        let bottom = HEIGHT - BOTTOM;
        for value in self.upward.labelled() {
            let (y, label) = (self.y(value), number(value));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let (upward, across) = match content {
            Content::Lines(_) => (unit, "bytes"),
            Content::Bars(_) => ("count", unit),
        };
        let steps = ((self.most / self.least).log2() / 6.0).ceil().max(1.0);
        let mut value = self.least;
        while value <= self.most * 1.001 {
            let (x, label) = (self.x(value), number(value));
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 16.0
            );
            value *= steps.exp2();
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{across}</text><text x=\"4\" y=\"12\">{upward}</text>",
            WIDTH - RIGHT + 8.0,
            bottom + 16.0
        );
        svg
    }

    fn line(&self, name: &str, line: &[(f64, f64)], index: usize) -> String {
        let colour = COLOURS[index % COLOURS.len()];
        let place = |point: &(f64, f64)| format!("{:.1},{:.1}", self.x(point.0), self.y(point.1));
        let points: Vec<_> = line.iter().map(place).collect();
        let mut svg = format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
        for point in line {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}</title></circle>",
                self.x(point.0),
                self.y(point.1),
                number(point.0),
                number(point.1)
            );
        }
        let y = TOP + 14.0 + 16.0 * index as f64;
        let x = WIDTH - RIGHT + 8.0;
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" style=\"fill:{colour}\">{name}</text>"
        );
        svg
    }

    fn bars(&self, bars: &[(f64, f64)]) -> String {
        let mut svg = String::new();
        let mut from = LEFT;
        for &(until, count) in bars {
            let (x, y) = (self.x(until), self.y(count));
            let width = (x - from).max(1.0);
            let _ = write!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>up to {}: {count}</title></rect>",
                HEIGHT - BOTTOM - y,
                COLOURS[0],
                number(until)
            );
            from = x;
        }
        svg
    }
}

/// A number with as many digits as a reader needs.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// The whole page.
pub(super) fn text(summary: &str, charts: &[Chart], table: &[String]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>roci perf</title><style>{STYLE}</style></head><body>\n<h1>roci perf</h1>\n<p>{}</p>\n",
        escaped(summary)
    );
    for chart in charts {
        let _ = writeln!(page, "<h2>{}</h2>\n{}", escaped(&chart.title), chart.svg());
    }
    let _ = writeln!(
        page,
        "<h2>All results</h2>\n<pre>{}</pre>",
        escaped(&table.join("\n"))
    );
    page + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_line_for_each_name_with_values() {
        let lines = vec![
            (
                "average",
                vec![(2.0, 10.0), (64.0, 300.0), (4096.0, 2000.0)],
            ),
            ("peak", vec![(2.0, 12.0), (64.0, 310.0), (4096.0, 2100.0)]),
            ("TCP", Vec::new()),
        ];
        let chart = Chart::lines("Bandwidth".to_owned(), "MiB/s", lines);
        let page = text("to <server>", &[chart], &["a < b".to_owned()]);
        assert_eq!(page.matches("<polyline").count(), 2);
        assert_eq!(page.matches("<circle").count(), 6);
        assert!(page.contains("to &lt;server&gt;") && page.contains("a &lt; b"));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }

    /// With a linear scale 2 MiB/s would be a tenth of a pixel above the axis.
    #[test]
    fn values_of_small_messages_stand_apart_from_the_axis() {
        let line = vec![(2.0, 2.0), (64.0, 60.0), (1_048_576.0, 8000.0)];
        let chart = Chart::lines("Bandwidth".to_owned(), "MiB/s", vec![("average", line)]);
        let scale = Scale::of(&chart.points(), &chart.content);
        let heights = [2.0, 60.0, 8000.0].map(|value| HEIGHT - BOTTOM - scale.y(value));
        assert!(heights[0] > 10.0, "{heights:?}");
        assert!(heights.is_sorted() && heights[2] <= HEIGHT - TOP - BOTTOM);
        let svg = chart.svg();
        for label in [">1<", ">10<", ">100<", ">1000<", ">10k<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
    }

    #[test]
    fn a_plot_of_one_value_or_none_is_drawn() {
        for values in [vec![(5.0, 3.0)], vec![(5.0, 0.0)], Vec::new()] {
            let lines = vec![("average", values.clone())];
            let lines = Chart::lines("x".to_owned(), "us", lines).svg();
            let bars = Chart::bars("x".to_owned(), "us", values).svg();
            for svg in [lines, bars] {
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
