//! Shows progress: a line that counts seconds on a terminal, plain lines otherwise.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// When a step first says that it is under way, and how often it repeats it, where nobody sees a spinner.
const FIRST_WORD: Duration = Duration::from_secs(2);
const REMINDER: Duration = Duration::from_secs(30);

/// A step that is under way. Dropped without [`Step::done`], it says nothing: the error will.
pub(crate) struct Step {
    text: String,
    started: Instant,
    bar: ProgressBar,
    reminder: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Step {
    pub(crate) fn begin(text: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        let hidden = bar.is_hidden();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(text.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { text: text.to_owned(), started: Instant::now(), bar, reminder: hidden.then(|| remind(text)) }
    }

    pub(crate) fn done(self) {
        self.bar.finish_and_clear();
        eprintln!("{}: {:.1} s", self.text, self.started.elapsed().as_secs_f32());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some((stop, thread)) = self.reminder.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn remind(text: &str) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel::<()>();
    let (text, started) = (text.to_owned(), Instant::now());
    let thread = std::thread::spawn(move || {
        let mut pause = FIRST_WORD;
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
            eprintln!("{text}: {} s so far", started.elapsed().as_secs());
            pause = REMINDER;
        }
    });
    (stop, thread)
}
