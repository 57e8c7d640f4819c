//! Which addresses a callback may go to: those of the public internet, and what the operator allows.
//!
//! Here is the one decision; `connect` asks it of the very address that it then connects to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Networks that callbacks may go to although they are not public (`serve.callback_allow`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Vec<IpNet>);

impl Allowed {
    /// From texts such as `10.0.0.0/8`; an address alone is a network of one.
    ///
    /// # Errors
    /// The first text that is no network, and what would be right.
    pub fn parse<S: AsRef<str>>(networks: &[S]) -> Result<Allowed, String> {
        let parse = |text: &S| network(text.as_ref());
        networks.iter().map(parse).collect::<Result<_, _>>().map(Allowed)
    }

    /// Why a callback must not go to this address; `None` = it may.
    #[must_use]
    pub fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        // An IPv4 address in IPv6 form is that IPv4 address: the system connects to it.
        let address = address.to_canonical();
        if self.0.iter().any(|network| network.contains(&address)) {
            return None;
        }
        match address {
            IpAddr::V4(address) => not_public_v4(address),
            IpAddr::V6(address) => not_public_v6(address),
        }
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let wrong = || format!("\"{text}\" is no network, such as 10.0.0.0/8, 127.0.0.1 or fd00::/8");
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().map_err(|_| wrong())?,
    };
    match network.addr() {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("\"{text}\" is an IPv4 network in IPv6 form; write it as IPv4"))
        }
        address if address != network.network() => {
            Err(format!("\"{text}\" has digits behind its prefix; {} is the network", network.trunc()))
        }
        _ => Ok(network),
    }
}

/// The special blocks of IPv4: the registry of IANA, "globally reachable: false", with multicast and what is reserved.
const SPECIAL_V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of \"this network\""),
    (Ipv4Addr::new(10, 0, 0, 0), 8, PRIVATE),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address behind a carrier's NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(172, 16, 0, 0), 12, PRIVATE),
    (Ipv4Addr::new(192, 0, 0, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 0, 2, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(192, 88, 99, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 168, 0, 0), 16, PRIVATE),
    (Ipv4Addr::new(198, 18, 0, 0), 15, RESERVED),
    (Ipv4Addr::new(198, 51, 100, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(203, 0, 113, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(224, 0, 0, 0), 4, MULTICAST),
    (Ipv4Addr::new(240, 0, 0, 0), 4, RESERVED),
];

const PRIVATE: &str = "a private address";
const LOOPBACK: &str = "an address of this machine itself";
const LINK_LOCAL: &str = "a link-local address, where clouds keep their machines' credentials";
const RESERVED: &str = "a reserved address";
const DOCUMENTATION: &str = "an address for documentation";
const MULTICAST: &str = "a multicast address";
const TUNNEL: &str = "an address that hides an IPv4 address";

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let inside = |network: Ipv4Addr, prefix: u8| {
        let mask = u32::MAX << (32 - u32::from(prefix));
        address.to_bits() & mask == network.to_bits()
    };
    SPECIAL_V4.iter().find(|(network, prefix, _)| inside(*network, *prefix)).map(|(_, _, what)| *what)
}

/// Of IPv6 only global unicast (`2000::/3`) is public, and of that not the special blocks. The NAT64 prefix stands for the
/// IPv4 address inside it.
fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let last_v4 = || Ipv4Addr::from_bits(u32::from(parts[6]) << 16 | u32::from(parts[7]));
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("the unspecified address, which is this machine itself"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(LOOPBACK),
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => not_public_v4(last_v4()).map(|_| TUNNEL),
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => Some(TUNNEL),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some(LINK_LOCAL),
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Some(PRIVATE),
        [first, ..] if first & 0xff00 == 0xff00 => Some(MULTICAST),
        [0x2001, 0xdb8, ..] => Some(DOCUMENTATION),
        [0x3fff, second, ..] if second < 0x1000 => Some(DOCUMENTATION),
        // 2001::/23 is for protocols: benchmarks, ORCHID and the like.
        [0x2001, second, ..] if second < 0x200 => Some(RESERVED),
        // ISATAP: an interface identifier that is an IPv4 address.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Some(TUNNEL),
        [first, ..] if first & 0xe000 == 0x2000 => None,
        _ => Some(RESERVED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(allowed: &Allowed, address: &str) -> Option<&'static str> {
        allowed.refuses(address.parse().expect(address))
    }

    #[test]
    fn public_addresses_are_taken() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "2001:200::1",
            "3ffe:ffff::1",
            // An IPv4 address in other clothes is judged by what it is.
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(refused(&Allowed::default(), address), None, "{address}");
        }
    }

    #[test]
    fn private_and_special_addresses_are_refused_in_every_form() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:0:53aa:64c:0:0:f5ff:fffe",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:0a00:0001::1",
            "2002:808:808::1",
            "2606:4700::200:5efe:10.0.0.1",
            "2606:4700::5efe:10.0.0.1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456:789a::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(refused(&Allowed::default(), address).is_some(), "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_taken_and_its_neighbours_are_not() {
        let allowed = Allowed::parse(&["10.1.0.0/16", "127.0.0.1", "fd00:1::/32"]).unwrap();
        for address in ["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3", "127.0.0.1", "::ffff:127.0.0.1", "fd00:1::5"] {
            assert_eq!(refused(&allowed, address), None, "{address}");
        }
        for address in ["10.0.255.255", "10.2.0.0", "127.0.0.2", "::1", "fd00:2::5", "64:ff9b::10.1.2.3"] {
            assert!(refused(&allowed, address).is_some(), "{address}");
        }
        let all = Allowed::parse(&["0.0.0.0/0", "::/0"]).unwrap();
        assert_eq!((refused(&all, "127.0.0.1"), refused(&all, "2002:7f00:1::")), (None, None));
    }

    #[test]
    fn what_is_no_network_is_told_with_what_would_be_right() {
        for (text, told) in [
            ("10.0.0.0/33", "is no network"),
            ("localhost", "is no network"),
            ("10.0.0", "is no network"),
            ("", "is no network"),
            ("10.0.0.1/8", "10.0.0.0/8 is the network"),
            ("::ffff:10.0.0.0/104", "write it as IPv4"),
        ] {
            let wrong = Allowed::parse(&[text]).unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
        }
    }
}
