use super::{super::unread::Unread, *};

const HEADERS: u8 = 1;

fn head(kind: u8, length: usize, stream: u32) -> Head {
    Head { length, kind, flags: 0, stream }
}

fn streams() -> (Streams, Arc<Link>, Unread) {
    let unread = Unread::of(1 << 30);
    let link = Arc::new(Link::new(unread.clone()));
    (Streams::new(BytesMut::new(), Arc::clone(&link)), link, unread)
}

/// Begins a request with a body of which `arrived` bytes are there.
fn begin(streams: &Streams, stream: u32, arrived: usize) -> Inbox {
    let mut table = streams.table();
    table.open(head(HEADERS, 10, stream));
    let inbox = table.receive(head(DATA, arrived, stream)).unwrap().unwrap();
    inbox.push(&vec![0; arrived]);
    inbox
}

fn taken(streams: &Streams, stream: u32) -> Inbox {
    match streams.accept(stream, true) {
        Body::Taken(inbox) => inbox,
        _ => panic!("the body is not taken"),
    }
}

#[test]
fn what_is_unread_is_freed_however_a_stream_ends() {
    let (streams, link, unread) = streams();
    let ends: [fn(&Streams, u32); 4] = [
        |streams, stream| streams.table().reset_by_peer(stream),
        |streams, stream| _ = taken(streams, stream).give_up(),
        |streams, stream| {
            let inbox = taken(streams, stream);
            streams.table().reset_by_peer(stream);
            inbox.give_up();
        },
        |streams, stream| {
            let Body::Passed(inbox) = streams.accept(stream, false) else { panic!("taken") };
            inbox.drained();
        },
    ];
    for (number, end) in (0_u32..).zip(ends) {
        let stream = 2 * number + 1;
        drop(begin(&streams, stream, 1000));
        link.report();
        assert!(unread.used() >= 1000, "{number}");
        end(&streams, stream);
        assert_eq!((link.demand().unread, unread.used()), (0, 0), "{number}");
    }
}

#[test]
fn the_pool_is_left_with_the_connection() {
    let (streams, link, unread) = streams();
    let inbox = begin(&streams, 1, 1000);
    link.report();
    assert!(unread.used() >= 1000);
    drop((streams, link));
    assert!(unread.used() >= 1000, "the message is still there");
    drop(inbox);
    assert_eq!(unread.used(), 0);
}

#[test]
fn what_is_set_aside_for_a_message_that_waits_is_freed() {
    let (streams, link, _) = streams();
    let mut table = streams.table();
    table.open(head(HEADERS, 10, 1));
    let inbox = table.receive(head(DATA, 1000, 1)).unwrap().unwrap();
    drop(table);
    // A message of 60,000 bytes.
    inbox.push(&[&[0, 0, 0, 0xea, 0x60][..], &[0; 995]].concat());
    assert!(link.demand().unread > 60_000);
    let _inbox = taken(&streams, 1);
    assert_eq!(streams.table().trim(), 1000);
    assert_eq!(link.demand().unread, 1000);
}

#[test]
fn h2_gets_the_body_of_a_request_that_is_no_message() {
    let (streams, link, _) = streams();
    let inbox = begin(&streams, 1, 3);
    streams.table().end(1);
    assert!(matches!(streams.accept(1, false), Body::Passed(_)));
    assert!(inbox.is_elsewhere());
    let control = streams.table().control.split();
    assert_eq!(&control[..], [0, 0, 3, DATA, END_STREAM, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(link.demand().unread, 3, "until its handler has read it");
    inbox.drained();
    assert_eq!(link.demand().unread, 0);
    assert!(link.demand().wanted > 0, "it waits for more, or for the end");
    inbox.give_up();
    assert_eq!(link.demand().wanted, 0);
}

#[test]
fn h2_gets_the_end_of_a_message_only() {
    let (streams, ..) = streams();
    begin(&streams, 1, 3);
    taken(&streams, 1);
    assert!(matches!(streams.accept(1, true), Body::Other));
    assert_eq!(streams.table().control.len(), 0);
    streams.table().end(1);
    let control = streams.table().control.split();
    assert_eq!(&control[..], [0, 0, 0, DATA, END_STREAM, 0, 0, 0, 1]);
}

#[test]
fn h2_gets_nothing_of_a_message_that_it_has_reset() {
    let (streams, ..) = streams();
    begin(&streams, 1, 3);
    taken(&streams, 1).give_up();
    assert_eq!(streams.table().open_streams(), 1);
    streams.table().reset_by_h2(1);
    assert_eq!(streams.table().open_streams(), 0);
    assert!(streams.table().receive(head(DATA, 10, 1)).unwrap().is_some());
    streams.table().end(1);
    assert_eq!(streams.table().control.len(), 0);
    assert_eq!(streams.table().open_streams(), 0);
}

#[test]
fn streams_that_are_not_accepted_are_left_to_h2() {
    let (streams, link, _) = streams();
    begin(&streams, 1, 3);
    assert!(!streams.settle(), "h2 has not had its turn");
    streams.table().is_paused = true;
    assert!(streams.settle());
    assert!(matches!(streams.accept(1, true), Body::Other));
    assert_eq!(streams.table().control.len(), HEADER + 3);
    assert_eq!(link.demand().unread, 0);
}

#[test]
fn streams_that_never_end_are_forgotten_with_their_handlers() {
    let (streams, ..) = streams();
    for stream in (0..10 * STREAMS).map(|number| 2 * number + 1) {
        begin(&streams, stream, 3);
        taken(&streams, stream).give_up();
        streams.table().reset_by_h2(stream);
        // No handler has run, so nothing is kept for one.
        streams.table().trim();
    }
    assert!(streams.table().entries.len() <= 2 * STREAMS as usize);
    assert_eq!(streams.table().open_streams(), 0);
}

#[test]
fn windows_of_streams_follow_acknowledged_settings_below_zero() {
    let (streams, ..) = streams();
    let mut table = streams.table();
    let most = super::super::STREAM_WINDOW as usize;
    table.windows.acknowledge();
    let pressed = super::super::link::Demand { unread: most, wanted: 0 };
    table.windows.due(pressed, 8 * most, 0).unwrap();
    let data = |length| head(DATA, length, 1);
    table.open(head(HEADERS, 10, 1));
    let (initial, _) = table.windows.adapt(pressed, most, 256).unwrap();
    table.receive(data(most / 2)).expect("the old window holds before the acknowledgement");
    assert!(table.acknowledge());
    assert!(table.receive(data(1)).is_err(), "the window is below zero");
    assert!(table.receive(data(0)).is_ok(), "an empty frame needs none");
    table.open(head(HEADERS, 10, 3));
    table.receive(head(DATA, initial, 3)).unwrap();
    assert!(table.receive(head(DATA, 1, 3)).is_err());
}
