//! Debian's kernel in QEMU, emulated, without KVM.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::build_directory::BuildDirectory;
use super::command_channel::CHANNELS;
use super::image::Image;
use super::network::{LARGEST_MTU, TAP, addresses};

/// Sockets of the machine. `/run` belongs to our namespace, and its paths are short.
const SOCKETS: &str = "/run";

pub(crate) fn socket(channel: usize) -> PathBuf {
    Path::new(SOCKETS).join(format!("command{channel}"))
}

pub(crate) fn start(
    build_directory: &BuildDirectory,
    image: &Image,
    capture: &Path,
) -> Result<Child, String> {
    let errors =
        File::create(build_directory.file("qemu.log")).map_err(|error| error.to_string())?;
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args("-M pc -accel tcg,thread=multi -cpu max -smp 2 -m 768".split(' '))
        .args("-nodefaults -display none -no-reboot".split(' '))
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", &kernel_command_line()])
        .args([
            "-serial",
            &format!("file:{}", build_directory.file("console.log").display()),
        ])
        .args(["-device", "virtio-serial-pci"])
        .args(network_device(capture));
    for channel in 0..CHANNELS {
        let path = socket(channel);
        let path = path.display();
        let (port, number) = (format!("port{channel}"), channel + 1);
        command.args([
            "-chardev",
            &format!("socket,id={port},path={path},server=on,wait=off"),
            "-device",
            &format!("virtserialport,chardev={port},nr={number}"),
        ]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("QEMU can't be started: {error}"))
}

fn kernel_command_line() -> String {
    format!(
        "console=ttyS0 panic=-1 quiet edd=off mitigations=off tsc=reliable net.ifnames=0 {}",
        addresses()
    )
}

/// The network device and its capture. There are no offloads, so the capture has the packets as a real link carries them.
fn network_device(capture: &Path) -> [String; 6] {
    let capture = capture.display();
    [
        "-netdev".into(),
        format!("tap,id=link,ifname={TAP},script=no,downscript=no,vnet_hdr=off"),
        "-device".into(),
        format!("virtio-net-pci,netdev=link,host_mtu={LARGEST_MTU},romfile="),
        "-object".into(),
        format!("filter-dump,id=dump,netdev=link,file={capture},maxlen=65536"),
    ]
}
