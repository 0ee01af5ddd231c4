//! A replica's connection to the API server, which can be cut for this replica alone. Bytes pass unchanged, so TLS does
//! not notice.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

/// A fault in the connection to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Nothing passes, and neither side notices. Data sent in the meantime arrives once the connection is restored.
    Silent,
    /// Requests pass and are carried out, but no answer comes back until the connection is restored.
    NoAnswers,
    /// Every connection is closed, including new ones.
    Closed,
}

/// Forwards connections to the API server, unless there is an [`Outage`].
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    is_over: bool,
    /// Both ends of each connection, by its number.
    connections: BTreeMap<u64, [TcpStream; 2]>,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Request,
    Answer,
}

impl Forwarder {
    /// Starts to forward connections from a local address of its own. It ends when it is dropped.
    pub fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || own.serve(&listener, target));
        Ok(Self { address, shared })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connection, or changes the kind of outage.
    pub fn cut(&self, outage: Outage) {
        let mut state = self.shared.lock();
        state.outage = Some(outage);
        if outage == Outage::Closed {
            state.close_all();
        }
        self.shared.changed.notify_all();
    }

    /// Ends the outage.
    pub fn fix(&self) {
        self.shared.lock().outage = None;
        self.shared.changed.notify_all();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.close_all();
        drop(state);
        self.shared.changed.notify_all();
        // The listener checks for the end only when a connection arrives.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, listener: &TcpListener, target: SocketAddr) {
        for client in listener.incoming() {
            if self.lock().is_over {
                return;
            }
            // Dropping a connection that cannot be forwarded closes it.
            let _ = client.map_err(Into::into).and_then(|client| self.pass_on(client, target));
        }
    }

    fn pass_on(self: &Arc<Self>, client: TcpStream, target: SocketAddr) -> Result<()> {
        if self.lock().outage == Some(Outage::Closed) {
            return Ok(());
        }
        let server = TcpStream::connect(target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let number = self.lock().keep([client.try_clone()?, server.try_clone()?]);
        let requests = (client.try_clone()?, server.try_clone()?, Direction::Request);
        for (from, to, direction) in [requests, (server, client, Direction::Answer)] {
            let own = Arc::clone(self);
            thread::spawn(move || {
                own.pump(from, to, direction, number);
                own.lock().close(number);
                own.changed.notify_all();
            });
        }
        Ok(())
    }

    /// Copies bytes until one side ends. During an outage the end is not forwarded either.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction, number: u64) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            if !self.wait_for_passage(direction, number)
                || read == 0
                || to.write_all(&buffer[..read]).is_err()
            {
                return;
            }
        }
    }

    /// Waits until data may pass. Returns false if the connection is closed by then.
    fn wait_for_passage(&self, direction: Direction, number: u64) -> bool {
        let mut state = self.lock();
        while state.connections.contains_key(&number) && state.stops(direction) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.connections.contains_key(&number)
    }
}

impl State {
    fn stops(&self, direction: Direction) -> bool {
        match (self.outage, direction) {
            (None, _) | (Some(Outage::NoAnswers), Direction::Request) => false,
            (Some(Outage::NoAnswers), Direction::Answer) | (Some(Outage::Silent | Outage::Closed), _) => true,
        }
    }

    fn keep(&mut self, ends: [TcpStream; 2]) -> u64 {
        self.last += 1;
        self.connections.insert(self.last, ends);
        self.last
    }

    fn close(&mut self, number: u64) {
        for end in self.connections.remove(&number).into_iter().flatten() {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn close_all(&mut self) {
        while let Some((&number, _)) = self.connections.first_key_value() {
            self.close(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns a forwarder to a server, and the bytes that the server receives. It answers each byte with the next one.
    fn server() -> (Forwarder, mpsc::Receiver<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let forwarder = Forwarder::start(listener.local_addr().unwrap()).unwrap();
        let (sender, heard) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, sender) = (stream.unwrap(), sender.clone());
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() {
                        sender.send(byte[0]).unwrap();
                        if stream.write_all(&[byte[0] + 1]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (forwarder, heard)
    }

    fn connect(forwarder: &Forwarder) -> TcpStream {
        let stream = TcpStream::connect(forwarder.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn read(stream: &mut TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    }

    fn ask(stream: &mut TcpStream, byte: u8) -> u8 {
        stream.write_all(&[byte]).unwrap();
        read(stream)
    }

    /// Asserts that nothing arrives for a moment. Both ends are on this machine, so a byte that got through would have
    /// arrived.
    fn hears_nothing(stream: &mut TcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let kind = stream.read_exact(&mut [0]).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }

    /// Returns true if the connection ends, as opposed to staying silent.
    fn ends(mut stream: TcpStream) -> bool {
        match stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(err) => !matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    #[test]
    fn what_was_sent_in_silence_arrives_later() {
        let (forwarder, heard) = server();
        let mut client = connect(&forwarder);
        assert_eq!(ask(&mut client, 1), 2);
        assert_eq!(heard.recv(), Ok(1));
        forwarder.cut(Outage::Silent);
        client.write_all(&[5]).unwrap();
        let mut late = connect(&forwarder);
        late.write_all(&[7]).unwrap();
        hears_nothing(&mut client);
        assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Empty));
        forwarder.fix();
        assert_eq!((read(&mut client), read(&mut late)), (6, 8));
    }

    #[test]
    fn a_request_without_an_answer_was_carried_out() {
        let (forwarder, heard) = server();
        let mut client = connect(&forwarder);
        forwarder.cut(Outage::NoAnswers);
        client.write_all(&[5]).unwrap();
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(5));
        hears_nothing(&mut client);
        forwarder.fix();
        assert_eq!(read(&mut client), 6);
    }

    #[test]
    fn closed_means_closed_for_old_and_new_connections() {
        let (forwarder, _heard) = server();
        let mut client = connect(&forwarder);
        assert_eq!(ask(&mut client, 1), 2);
        forwarder.cut(Outage::Silent);
        client.write_all(&[3]).unwrap();
        forwarder.cut(Outage::Closed);
        assert!(ends(client));
        assert!(ends(connect(&forwarder)));
        forwarder.fix();
        assert_eq!(ask(&mut connect(&forwarder), 1), 2);
    }

    #[test]
    fn a_forwarder_that_is_dropped_takes_its_connections_with_it() {
        let (forwarder, _heard) = server();
        let (address, mut client) = (forwarder.address(), connect(&forwarder));
        assert_eq!(ask(&mut client, 1), 2);
        forwarder.cut(Outage::Silent);
        drop(forwarder);
        assert!(ends(client));
        // The listener ends after the connection that woke it.
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_ok() {
            assert!(Instant::now() < deadline, "it still listens");
        }
    }
}
