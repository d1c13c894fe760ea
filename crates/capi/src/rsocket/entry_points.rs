//! The `r*` functions that C calls.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libc::{epoll_event, fd_set, iovec, msghdr, pollfd, sockaddr, socklen_t, timeval};

use super::datagram::Datagram;
use super::datagram_header::MAX_MESSAGE;
use super::epoll;
use super::poll::{self, Sets};
use super::settings::Flags;
use super::socket_table::{self, Socket};
use super::stream::Stream;
use crate::entry::{CountOrMinusOne, MinusOne, Pointer, entry};
use crate::errno::Errno;
use crate::rdmacm::socket_address;

entry! {
    export fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> MinusOne {
        let _ = protocol;
        if family != libc::AF_INET && family != libc::AF_INET6 {
            return Err(Errno::UNSUPPORTED);
        }
        let flags = Flags::of_type(kind);
        let socket = match kind & !Flags::IN_TYPE {
            libc::SOCK_STREAM => Socket::Stream(Arc::new(Stream::new(family, flags)?)),
            libc::SOCK_DGRAM => Socket::Datagram(Arc::new(Datagram::new(family, flags)?)),
            _ => return Err(Errno::UNSUPPORTED),
        };
        Ok(MinusOne(socket_table::insert(socket)))
    }

    export fn rbind(number: c_int, local: Pointer<sockaddr>, _length: u32) -> MinusOne {
        let local = socket_address::given(local.0)?;
        match socket_table::socket(number)? {
            Socket::Stream(stream) => stream.bind(local)?,
            Socket::Datagram(datagram) => datagram.bind(local)?,
        }
        Ok(MinusOne::DONE)
    }

    export fn rlisten(number: c_int, backlog: c_int) -> MinusOne {
        socket_table::stream(number)?.listen(backlog)?;
        Ok(MinusOne::DONE)
    }

    export fn raccept(
        number: c_int,
        peer: Pointer<sockaddr>,
        length: Pointer<socklen_t>,
    ) -> MinusOne {
        let accepted = socket_table::stream(number)?.accept()?;
        if let Some(from) = accepted.peer_address() {
            put_address(peer.0, length.0, from);
        }
        Ok(MinusOne(socket_table::insert(Socket::Stream(Arc::new(accepted)))))
    }

    export fn rconnect(number: c_int, peer: Pointer<sockaddr>, _length: u32) -> MinusOne {
        let peer = socket_address::given(peer.0)?;
        match socket_table::socket(number)? {
            Socket::Stream(stream) => stream.connect(peer)?,
            Socket::Datagram(datagram) => datagram.connect(peer)?,
        }
        Ok(MinusOne::DONE)
    }

    export fn rshutdown(number: c_int, how: c_int) -> MinusOne {
        socket_table::stream(number)?.shut_down(how)?;
        Ok(MinusOne::DONE)
    }

    export fn rclose(number: c_int) -> MinusOne {
        match socket_table::remove(number) {
            Ok(socket) => {
                epoll::forget(number);
                socket.close();
            }
            Err(_) => epoll::close(number)?,
        }
        Ok(MinusOne::DONE)
    }

    export fn rrecv(number: c_int, into: *mut c_void, length: usize, flags: c_int) -> CountOrMinusOne {
        let (count, _) = receive(number, &mut [buffer_at(into, length)], flags)?;
        Ok(count)
    }

    export fn rrecvfrom(
        number: c_int,
        into: *mut c_void,
        length: usize,
        flags: c_int,
        from: Pointer<sockaddr>,
        from_length: Pointer<socklen_t>,
    ) -> CountOrMinusOne {
        let (count, sender) = receive(number, &mut [buffer_at(into, length)], flags)?;
        // The peer of a stream is looked up only if the program asks for it: that is a call of the connection manager.
        let asks = sender.is_none() && count.0 > 0 && !from.0.is_null();
        let sender = if asks { socket_table::stream(number)?.peer_address() } else { sender };
        if let Some(sender) = sender {
            put_address(from.0, from_length.0, sender);
        }
        Ok(count)
    }

    export fn rrecvmsg(number: c_int, message: Pointer<msghdr>, flags: c_int) -> CountOrMinusOne {
        // SAFETY: null, or by the header's promise a live structure.
        let message = unsafe { message.0.as_ref() }.ok_or(Errno::INVALID)?;
        // There is no control data.
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let parts: usize = message.msg_iovlen as _;
        check_list(parts, Errno(libc::EMSGSIZE))?;
        let (count, _) = receive(number, &mut buffers(message.msg_iov, parts), flags)?;
        Ok(count)
    }

    export fn rread(number: c_int, into: *mut c_void, length: usize) -> CountOrMinusOne {
        let (count, _) = receive(number, &mut [buffer_at(into, length)], 0)?;
        Ok(count)
    }

    export fn rreadv(number: c_int, list: Pointer<iovec>, count: c_int) -> CountOrMinusOne {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        check_list(count, Errno::INVALID)?;
        let (count, _) = receive(number, &mut buffers(list.0, count), 0)?;
        Ok(count)
    }

    export fn rsend(number: c_int, data: *const c_void, length: usize, flags: c_int) -> CountOrMinusOne {
        send(number, &[data_at(data, length)], flags, None)
    }

    export fn rsendto(
        number: c_int,
        data: *const c_void,
        length: usize,
        flags: c_int,
        to: Pointer<sockaddr>,
        _to_length: u32,
    ) -> CountOrMinusOne {
        send(number, &[data_at(data, length)], flags, socket_address::optional(to.0)?)
    }

    export fn rsendmsg(number: c_int, message: Pointer<msghdr>, flags: c_int) -> CountOrMinusOne {
        // SAFETY: null, or by the header's promise a live structure.
        let message = unsafe { message.0.as_ref() }.ok_or(Errno::INVALID)?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Errno::UNSUPPORTED);
        }
        // Its width differs between C libraries.
        let parts: usize = message.msg_iovlen as _;
        check_list(parts, Errno(libc::EMSGSIZE))?;
        send(number, &data_of(message.msg_iov, parts), flags, None)
    }

    export fn rwrite(number: c_int, data: *const c_void, length: usize) -> CountOrMinusOne {
        send(number, &[data_at(data, length)], 0, None)
    }

    export fn rwritev(number: c_int, list: Pointer<iovec>, count: c_int) -> CountOrMinusOne {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        check_list(count, Errno::INVALID)?;
        send(number, &data_of(list.0, count), 0, None)
    }

    export fn rpoll(entries: Pointer<pollfd>, count: usize, timeout: c_int) -> MinusOne {
        // The kernel allows as many as there can be descriptors.
        if c_int::try_from(count).is_err() {
            return Err(Errno::INVALID);
        }
        let entries: &mut [pollfd] = if entries.0.is_null() {
            &mut []
        } else {
            // SAFETY: the program has `count` entries there, which no other thread uses during this call.
            unsafe { std::slice::from_raw_parts_mut(entries.0, count) }
        };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Ok(MinusOne(poll::poll(entries, timeout)? as c_int))
    }

    export fn rselect(
        count: c_int,
        read: Pointer<fd_set>,
        write: Pointer<fd_set>,
        except: Pointer<fd_set>,
        timeout: Pointer<timeval>,
    ) -> MinusOne {
        let sets = Sets { read: read.0, write: write.0, except: except.0 };
        // SAFETY: null, or by the header's promise a live structure.
        let timeout = unsafe { timeout.0.as_ref() }.map(duration_of).transpose()?;
        Ok(MinusOne(poll::select(count, &sets, timeout)? as c_int))
    }

    export fn rgetpeername(
        number: c_int,
        peer: Pointer<sockaddr>,
        length: Pointer<socklen_t>,
    ) -> MinusOne {
        let address = match socket_table::socket(number)? {
            Socket::Stream(stream) => stream.peer_address(),
            Socket::Datagram(datagram) => datagram.peer_address(),
        };
        put_address(peer.0, length.0, address.ok_or(Errno(libc::ENOTCONN))?);
        Ok(MinusOne::DONE)
    }

    export fn rgetsockname(
        number: c_int,
        local: Pointer<sockaddr>,
        length: Pointer<socklen_t>,
    ) -> MinusOne {
        let address = match socket_table::socket(number)? {
            Socket::Stream(stream) => stream.local_address(),
            Socket::Datagram(datagram) => datagram.local_address()?,
        };
        put_address(local.0, length.0, address);
        Ok(MinusOne::DONE)
    }

    export fn rsetsockopt(
        number: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: u32,
    ) -> MinusOne {
        let socket = socket_table::socket(number)?;
        let is_short = (length as usize) < size_of::<c_int>();
        let may_be_byte = (level, name) == (libc::IPPROTO_IP, libc::IP_TOS) && length > 0;
        if value.is_null() || (is_short && !may_be_byte) {
            return Err(Errno::INVALID);
        }
        match socket {
            Socket::Stream(stream) => {
                let value = if is_short {
                    // SAFETY: not null, and the program says that there is at least a byte.
                    unsafe { value.cast::<u8>().read() }.into()
                } else {
                    // SAFETY: not null, and the program says that there are at least the bytes of an int.
                    unsafe { value.cast::<c_int>().read_unaligned() }
                };
                stream.set_option(level, name, value)?;
            }
            // SAFETY: not null, and the program says that there are `length` bytes.
            Socket::Datagram(datagram) => unsafe { datagram.set_option(level, name, value, length)? },
        }
        Ok(MinusOne::DONE)
    }

    export fn rgetsockopt(
        number: c_int,
        level: c_int,
        name: c_int,
        value: Pointer<c_void>,
        length: Pointer<socklen_t>,
    ) -> MinusOne {
        let found = match socket_table::socket(number)? {
            Socket::Stream(stream) => stream.option(level, name)?,
            Socket::Datagram(_) if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) => 0,
            Socket::Datagram(datagram) => {
                if value.0.is_null() || length.0.is_null() {
                    return Err(Errno::INVALID);
                }
                // SAFETY: not null, so by the header's promise a length, and so many bytes.
                unsafe { datagram.option(level, name, value.0, length.0)? };
                return Ok(MinusOne::DONE);
            }
        };
        if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            // `struct linger`: how long is not limited.
            put_numbers(value.0, length.0, &[found, 0])?;
        } else {
            put_numbers(value.0, length.0, &[found])?;
        }
        Ok(MinusOne::DONE)
    }

    /// The third argument is variadic; an int is passed in the same way.
    export fn rfcntl(number: c_int, command: c_int, argument: c_int) -> MinusOne {
        let socket = socket_table::socket(number)?;
        Ok(MinusOne(socket.with_flags(|flags| flags.control(command, argument))?))
    }

    export fn riomap(
        number: c_int,
        start: *mut c_void,
        length: usize,
        protection: c_int,
        _flags: c_int,
        offset: i64,
    ) -> CountOrMinusOne {
        if protection & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
            return Err(Errno::INVALID);
        }
        let writable = protection & libc::PROT_WRITE != 0;
        let offset = u64::try_from(offset).ok();
        let mapped = socket_table::stream(number)?.map(start, length, writable, offset)?;
        Ok(CountOrMinusOne(mapped as isize))
    }

    export fn riounmap(number: c_int, start: *mut c_void, length: usize) -> MinusOne {
        socket_table::stream(number)?.unmap(start.addr(), length)?;
        Ok(MinusOne::DONE)
    }

    export fn riowrite(
        number: c_int,
        data: *const c_void,
        length: usize,
        offset: i64,
        flags: c_int,
    ) -> CountOrMinusOne {
        let offset = u64::try_from(offset).map_err(|_| Errno::INVALID)?;
        let written = socket_table::stream(number)?.write_at(data_at(data, length), offset, flags)?;
        Ok(CountOrMinusOne(written as isize))
    }

    export fn repoll_create(flags: c_int) -> MinusOne {
        Ok(MinusOne(epoll::create(flags)?))
    }

    export fn repoll_ctl(
        set: c_int,
        operation: c_int,
        member: c_int,
        event: Pointer<epoll_event>,
    ) -> MinusOne {
        epoll::control(set, operation, member, event.0)?;
        Ok(MinusOne::DONE)
    }

    export fn repoll_wait(
        set: c_int,
        events: Pointer<epoll_event>,
        count: c_int,
        timeout: c_int,
    ) -> MinusOne {
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or(Errno::INVALID)?;
        if events.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, so by the header's promise memory for `count` events, which no other thread uses
        // during this call.
        let events = unsafe { std::slice::from_raw_parts_mut(events.0, count) };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Ok(MinusOne(epoll::wait(set, events, timeout)? as c_int))
    }
}

fn send(
    number: c_int,
    parts: &[&[u8]],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<CountOrMinusOne, Errno> {
    let sent = match socket_table::socket(number)? {
        Socket::Stream(stream) => {
            let mut sent = 0;
            for part in parts {
                let flags = if sent > 0 {
                    flags | libc::MSG_DONTWAIT
                } else {
                    flags
                };
                match stream.send(part, flags) {
                    Ok(length) if length < part.len() => return Ok(count(sent + length)),
                    Ok(length) => sent += length,
                    Err(_) if sent > 0 => break,
                    Err(errno) => return Err(errno),
                }
            }
            sent
        }
        Socket::Datagram(datagram) => {
            if total(parts.iter().map(|part| part.len())) > MAX_MESSAGE {
                return Err(Errno(libc::EMSGSIZE));
            }
            datagram.send(&parts.concat(), to)?
        }
    };
    Ok(count(sent))
}

/// Receives into one buffer after another. Returns the count, and the sender of a datagram.
fn receive(
    number: c_int,
    parts: &mut [&mut [u8]],
    flags: c_int,
) -> Result<(CountOrMinusOne, Option<SocketAddr>), Errno> {
    match socket_table::socket(number)? {
        // Peeking at each part would give each the same data.
        Socket::Stream(stream) if flags & libc::MSG_PEEK != 0 && parts.len() > 1 => {
            let capacity = total(parts.iter().map(|part| part.len()));
            let mut whole = vec![0; capacity.min(stream.receive_buffer())];
            let length = stream.receive(&mut whole, flags)?;
            scatter(&whole[..length], parts);
            Ok((count(length), None))
        }
        Socket::Stream(stream) => {
            let waits_for_all = flags & libc::MSG_WAITALL != 0;
            let mut received = 0;
            for part in parts {
                let flags = if received > 0 && !waits_for_all {
                    flags | libc::MSG_DONTWAIT
                } else {
                    flags
                };
                match stream.receive(part, flags) {
                    Ok(length) => {
                        received += length;
                        if length < part.len() {
                            break;
                        }
                    }
                    Err(_) if received > 0 => break,
                    Err(errno) => return Err(errno),
                }
            }
            Ok((count(received), None))
        }
        Socket::Datagram(datagram) => {
            let capacity = total(parts.iter().map(|part| part.len()));
            let mut whole = vec![0; capacity.min(MAX_MESSAGE)];
            let (length, from) = datagram.receive(&mut whole, flags)?;
            scatter(&whole[..length], parts);
            Ok((count(length), Some(from)))
        }
    }
}

/// Copies data into one buffer after another.
fn scatter(data: &[u8], parts: &mut [&mut [u8]]) {
    let mut rest = data;
    for part in parts {
        let (head, tail) = rest.split_at(rest.len().min(part.len()));
        part[..head.len()].copy_from_slice(head);
        rest = tail;
    }
}

fn count(bytes: usize) -> CountOrMinusOne {
    CountOrMinusOne(bytes as isize)
}

fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

fn duration_of(given: &timeval) -> Result<Duration, Errno> {
    let seconds = u64::try_from(given.tv_sec).map_err(|_| Errno::INVALID)?;
    let microseconds = u64::try_from(given.tv_usec).map_err(|_| Errno::INVALID)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds)))
}

/// The most bytes that one call transfers, as in Linux: a program may name any length.
const MAX_CALL_BYTES: usize = 0x7fff_f000;

/// Fails for a list of buffers that is longer than Linux allows.
fn check_list(length: usize, too_long: Errno) -> Result<(), Errno> {
    const MAX_BUFFERS: usize = 1024;
    if length <= MAX_BUFFERS {
        Ok(())
    } else {
        Err(too_long)
    }
}

fn data_at<'a>(start: *const c_void, length: usize) -> &'a [u8] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the program says that it has `length` bytes there, for this call.
    unsafe { std::slice::from_raw_parts(start.cast(), length.min(MAX_CALL_BYTES)) }
}

fn buffer_at<'a>(start: *mut c_void, length: usize) -> &'a mut [u8] {
    if start.is_null() || length == 0 {
        return &mut [];
    }
    // SAFETY: the program says that there are `length` bytes, which no other thread uses during this call.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), length.min(MAX_CALL_BYTES)) }
}

fn parts<'a>(list: *const iovec, length: usize) -> &'a [iovec] {
    if list.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the program says that it has `length` entries there, for this call.
    unsafe { std::slice::from_raw_parts(list, length) }
}

fn data_of<'a>(list: *const iovec, length: usize) -> Vec<&'a [u8]> {
    let parts = parts(list, length).iter();
    parts.map(|it| data_at(it.iov_base, it.iov_len)).collect()
}

fn buffers<'a>(list: *const iovec, length: usize) -> Vec<&'a mut [u8]> {
    let parts = parts(list, length).iter();
    parts.map(|it| buffer_at(it.iov_base, it.iov_len)).collect()
}

/// Writes an address as far as it fits, and its whole length.
fn put_address(output: *mut sockaddr, length: *mut socklen_t, found: SocketAddr) {
    if output.is_null() || length.is_null() {
        return;
    }
    let storage = socket_address::stored(found);
    let whole = socket_address::length(&found);
    // SAFETY: not null, so by the header's promise a length.
    let capacity = unsafe { length.read() } as usize;
    // SAFETY: at most the capacity that the program gave, from a structure that is long enough.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const storage).cast::<u8>(),
            output.cast::<u8>(),
            whole.min(capacity),
        );
    }
    // SAFETY: as above.
    unsafe { length.write(whole as socklen_t) };
}

/// Writes an option as far as it fits: at least its first number.
fn put_numbers(output: *mut c_void, length: *mut socklen_t, found: &[c_int]) -> Result<(), Errno> {
    if output.is_null() || length.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: not null, so by the header's promise a length.
    let capacity = unsafe { length.read() } as usize;
    if capacity < size_of::<c_int>() {
        return Err(Errno::INVALID);
    }
    let written = size_of_val(found).min(capacity);
    // SAFETY: at most the capacity that the program gave, and at most what the slice has.
    unsafe {
        std::ptr::copy_nonoverlapping(found.as_ptr().cast::<u8>(), output.cast::<u8>(), written);
    }
    // SAFETY: as above.
    unsafe { length.write(written as socklen_t) };
    Ok(())
}
