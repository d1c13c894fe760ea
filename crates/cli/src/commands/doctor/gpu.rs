//! Checks of GPUs, whose memory programs may register.

use std::fs;
use std::path::Path;

use super::Check;

const CHECK: &str = "GPU";

/// What the driver shows of its GPUs.
const DRIVER: &str = "/proc/driver/nvidia";

/// Through these, libcuda reaches the driver.
const DEVICE_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/nvidia-uvm"];

/// The driver of NVIDIA's GPUs, and whether programs here can use it.
pub(super) fn driver() -> Check {
    let missing = DEVICE_FILES.into_iter().find(|it| !Path::new(it).exists());
    judge(&models(Path::new(DRIVER)), missing)
}

fn judge(models: &[String], missing: Option<&str>) -> Check {
    match (models, missing) {
        ([], _) => Check::ok(
            CHECK,
            "there is no NVIDIA driver, so there is no memory of GPUs to register",
        ),
        (models, None) => Check::ok(
            CHECK,
            format!("programs can register memory of {}", models.join(", ")),
        ),
        (models, Some(file)) => Check::warn(
            CHECK,
            format!("there is {}, but no {file}", models.join(", ")),
            "start the container with its GPUs (`--gpus all`), or run a CUDA program once as root, which makes the file",
        ),
    }
}

/// The names of the GPUs.
fn models(driver: &Path) -> Vec<String> {
    let cards = fs::read_dir(driver.join("gpus"));
    let cards = cards.into_iter().flatten().flatten();
    let texts = cards.filter_map(|card| fs::read_to_string(card.path().join("information")).ok());
    let mut models: Vec<_> = texts.filter_map(|text| model_in(&text)).collect();
    models.sort();
    models
}

fn model_in(information: &str) -> Option<String> {
    let mut lines = information.lines();
    let model = lines.find_map(|line| line.strip_prefix("Model:"))?;
    Some(model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_in_the_file_of_the_card() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 44\n";
        assert_eq!(model_in(text).as_deref(), Some("NVIDIA H200"));
        assert_eq!(model_in("IRQ: 44\n"), None);
    }

    #[test]
    fn a_card_without_device_files_is_a_warning() {
        let models = ["NVIDIA H200".to_owned()];
        let found = judge(&models, Some("/dev/nvidia-uvm"));
        assert_eq!(
            found.finding,
            "there is NVIDIA H200, but no /dev/nvidia-uvm"
        );
        assert!(found.advice.is_some());
        assert!(judge(&models, None).advice.is_none());
        assert!(judge(&[], Some("/dev/nvidiactl")).advice.is_none());
    }
}
