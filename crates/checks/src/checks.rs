//! The checks, one file for each.

mod dns;
mod file;
mod http;
mod kubernetes;
mod mtu;
mod network;
mod off;
mod services;
mod tcp;

pub(crate) use self::dns::Dns;
pub(crate) use self::file::File;
pub(crate) use self::http::Http;
pub(crate) use self::kubernetes::Kubernetes;
pub(crate) use self::mtu::Mtu;
pub(crate) use self::network::Network;
pub(crate) use self::off::Off;
pub(crate) use self::services::Services;
pub(crate) use self::tcp::Tcp;

use crate::check::About;

/// The documentation of all checks: the built-in ones in the order of the report, then the others.
pub static ABOUT: [&About; 8] = [
    &dns::ABOUT,
    &kubernetes::ABOUT,
    &network::ABOUT,
    &services::ABOUT,
    &tcp::ABOUT,
    &http::ABOUT,
    &file::ABOUT,
    &mtu::ABOUT,
];

#[cfg(test)]
mod tests;
