//! A headless browser, driven by the WebDriver protocol: HTTP and JSON.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

const DRIVER: &str = "chromedriver";

/// The longest time of a step. It is generous, for busy machines.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// One browser window. It is closed when this is dropped, also by a failing test.
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
    directory: PathBuf,
    /// Kept open, because the driver ends if it can't write.
    _output: BufReader<ChildStdout>,
}

impl Browser {
    pub(crate) const WIDTH: u32 = 1500;
    pub(crate) const HEIGHT: u32 = 950;

    pub(crate) fn start() -> Self {
        let directory = fresh_directory();
        let mut driver = Command::new(DRIVER)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{DRIVER}: {error}; `apt-get install chromium chromium-driver` brings it")
            });
        let mut output = BufReader::new(driver.stdout.take().expect("its output is ours"));
        let address = format!("http://127.0.0.1:{}", port_of(&mut output));
        let settings = Agent::config_builder()
            .timeout_global(Some(STEP_TIMEOUT))
            .http_status_as_error(false);
        let mut browser = Browser {
            driver,
            agent: settings.build().into(),
            session: format!("{address}/session"),
            directory,
            _output: output,
        };
        let response = browser.post(
            "",
            &json!({ "capabilities": capabilities(&browser.directory) }),
        );
        let id = response["sessionId"].as_str().expect("a session has an id");
        browser.session = format!("{address}/session/{id}");
        browser
    }

    /// The directory for the files that the browser opens.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens a page and returns how many milliseconds it took until it was ready to use.
    pub(crate) fn open(&self, page: &Path) -> u64 {
        let address = format!("file://{}", page.display());
        self.post("/url", &json!({ "url": address }));
        self.wait_for("document.documentElement.dataset.ready !== undefined");
        let ready = self.ask("Number(document.documentElement.dataset.ready)");
        ready.as_u64().expect("the page says when it was ready")
    }

    /// The value of a JavaScript expression in the page.
    pub(crate) fn ask(&self, expression: &str) -> Value {
        self.run(&format!("return {expression};"))
    }

    pub(crate) fn text(&self, expression: &str) -> String {
        let value = self.ask(expression);
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression} is {value}, not text"))
            .to_owned()
    }

    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_for(&self, condition: &str) {
        let begin = Instant::now();
        while self.ask(condition) != Value::Bool(true) {
            assert!(begin.elapsed() < STEP_TIMEOUT, "never: {condition}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks at a position in the window.
    pub(crate) fn click(&self, x: f64, y: f64) {
        let (x, y) = (x.round() as i64, y.round() as i64);
        let actions = json!([
            { "type": "pointerMove", "x": x, "y": y, "duration": 0, "origin": "viewport" },
            { "type": "pointerDown", "button": 0 },
            { "type": "pointerUp", "button": 0 },
        ]);
        self.act(&json!({ "type": "pointer", "id": "mouse", "actions": actions }));
    }

    /// Clicks the first element of a selector.
    pub(crate) fn click_on(&self, selector: &str) {
        let middle = self.run(&format!(
            "const box = document.querySelector({selector:?}).getBoundingClientRect();
             return [box.x + box.width / 2, box.y + box.height / 2];"
        ));
        let place = |index: usize| middle[index].as_f64().expect("a place");
        self.click(place(0), place(1));
    }

    /// Types text, one key after the other.
    pub(crate) fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            [
                json!({ "type": "keyDown", "value": key }),
                json!({ "type": "keyUp", "value": key }),
            ]
        });
        let actions: Vec<_> = strokes.collect();
        self.act(&json!({ "type": "key", "id": "keyboard", "actions": actions }));
    }

    fn act(&self, source: &Value) {
        self.post("/actions", &json!({ "actions": [source] }));
    }

    /// Emulates another colour scheme.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.post("/goog/cdp/execute", &command);
    }

    /// Gives the page another size.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": size });
        self.post("/goog/cdp/execute", &command);
        self.wait_for(&format!(
            "innerWidth === {width} && size.height === ladder.scroller.clientHeight"
        ));
    }

    /// The window as a PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        // Wait for two frames, so that earlier changes are drawn.
        self.post("/execute/async", &json!({
            "script": "requestAnimationFrame(() => requestAnimationFrame(arguments[0]));", "args": [],
        }));
        decoded(&self.get("/screenshot"))
    }

    /// The page on paper, as a PDF.
    pub(crate) fn print(&self) -> Vec<u8> {
        decoded(&self.post("/print", &json!({})))
    }

    /// The log entries of the page and the browser since the last call.
    pub(crate) fn log_entries(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().expect("a list of entries").iter();
        entries.map(|entry| entry["message"].to_string()).collect()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let address = format!("{}{path}", self.session);
        let response = self.agent.post(&address).send_json(body);
        value_of(path, response)
    }

    fn get(&self, path: &str) -> Value {
        value_of(
            path,
            self.agent.get(format!("{}{path}", self.session)).call(),
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. The driver is killed separately.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn capabilities(directory: &Path) -> Value {
    let arguments = [
        "--headless".to_owned(),
        // A container may not allow the sandbox. The page is trusted.
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        format!("--user-data-dir={}", directory.join("profile").display()),
        format!("--window-size={},{}", Browser::WIDTH, Browser::HEIGHT),
    ];
    json!({ "alwaysMatch": {
        "goog:chromeOptions": { "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL" },
    } })
}

/// The free port that the driver chose and printed.
fn port_of(output: &mut impl BufRead) -> u16 {
    let mut lines = output.lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let (_, behind) = line.split_once("started successfully on port ")?;
        behind.trim_end_matches('.').parse().ok()
    });
    port.unwrap_or_else(|| panic!("{DRIVER} ended before it was ready"))
}

fn value_of(path: &str, response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Value {
    let mut response = response.unwrap_or_else(|error| panic!("{path}: {error}"));
    let status = response.status();
    let mut body: Value = response
        .body_mut()
        .with_config()
        .limit(u64::MAX)
        .read_json()
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(status.is_success(), "{path}: {}", body["value"]["message"]);
    body["value"].take()
}

fn decoded(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("bytes come as text");
    STANDARD.decode(text).expect("the text is base64")
}

fn fresh_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("roci-browser-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory).expect("a directory for the browser");
    directory
}

/// Creates a file with a buffered writer.
pub(crate) fn create(path: &Path) -> std::io::BufWriter<File> {
    std::io::BufWriter::new(File::create(path).expect("the directory is ours"))
}
