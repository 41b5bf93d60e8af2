//! The sections of a file, and those that are plain tables: names, frames, stacks.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Frame, HEADER_BYTES, MAGIC, MAX_STACK, ReadError, SECTION_BYTES, SECTIONS, Section, Stack,
    VERSION, cursor::Cursor,
};

/// The sections of a file, whose checksums are right.
pub(super) fn sections(file: &[u8]) -> Result<[Cursor<'_>; SECTIONS.len()], ReadError> {
    let mut header = Cursor::new(Section::Header, file, 0);
    let magic = &file[..MAGIC.len().min(file.len())];
    if magic != &MAGIC[..magic.len()] {
        return Err(header.error("this is no program stored by jaxide"));
    }
    header.take(MAGIC.len())?;
    let offset = header.offset();
    let version = u32::from_le_bytes(header.array()?);
    if version == 0 || version > VERSION {
        return Err(header.error_at(
            offset,
            format!("the version of the format is {version}, this jaxide reads up to {VERSION}"),
        ));
    }
    header.take(HEADER_BYTES - 8 - MAGIC.len() - 4)?;
    let (checked, checksum) = (&file[..HEADER_BYTES - 8], header.array()?);
    if xxh3_64(checked) != u64::from_le_bytes(checksum) {
        return Err(header.error_at(0, "the checksum of the header is wrong: the file was altered"));
    }
    let mut header = Cursor::new(Section::Header, checked, 0);
    header.take(MAGIC.len() + 4)?;
    let offset = header.offset();
    if u32::from_le_bytes(header.array()?) as usize != SECTIONS.len() {
        return Err(header.error_at(offset, format!("there are not {} sections", SECTIONS.len())));
    }
    let offset = header.offset();
    let len = u64::from_le_bytes(header.array()?);
    if len != file.len() as u64 {
        let what = format!("the file has {} bytes, it had {len} when it was written", file.len());
        return Err(header.error_at(offset, what));
    }
    let mut content = &file[HEADER_BYTES..];
    let mut base = HEADER_BYTES as u64;
    let mut found = SECTIONS.map(|section| Cursor::new(section, &[], 0));
    for (place, kind) in SECTIONS.into_iter().enumerate() {
        debug_assert_eq!(header.offset(), (24 + place * SECTION_BYTES) as u64);
        let offset = header.offset();
        if u64::from_le_bytes(header.array()?) != place as u64 + 1 {
            return Err(header.error_at(offset, format!("section {} is not the {kind}", place + 1)));
        }
        let offset = header.offset();
        let len = u64::from_le_bytes(header.array()?);
        let checksum = u64::from_le_bytes(header.array()?);
        let split = usize::try_from(len).ok().and_then(|len| content.split_at_checked(len));
        let Some((section, rest)) = split else {
            return Err(header.error_at(
                offset,
                format!("the {kind} have {len} bytes, of which {} are there", content.len()),
            ));
        };
        let cursor = Cursor::new(kind, section, base);
        if xxh3_64(section) != checksum {
            let end = base + len;
            return Err(cursor.error(format!(
                "the checksum of bytes {base} to {end} is wrong: the file was altered"
            )));
        }
        found[place] = cursor;
        content = rest;
        base += len;
    }
    if !content.is_empty() {
        let what = format!("{} bytes are in no section", content.len());
        return Err(header.error_at(base, what));
    }
    Ok(found)
}

pub(super) fn read_names(mut cursor: Cursor<'_>) -> Result<Vec<Cow<'_, str>>, ReadError> {
    let len = cursor.len(1)?;
    let mut names = Vec::with_capacity(len);
    for _ in 0..len {
        names.push(cursor.text()?.into());
    }
    cursor.end()?;
    Ok(names)
}

pub(super) fn read_frames(
    mut cursor: Cursor<'_>,
    num_names: usize,
) -> Result<Vec<Frame>, ReadError> {
    let len = cursor.len(6)?;
    let mut frames = Vec::with_capacity(len);
    for _ in 0..len {
        let [mut file, mut function] = [0; 2];
        for name in [&mut file, &mut function] {
            let offset = cursor.offset();
            *name = cursor.u32()?;
            if *name as usize >= num_names {
                return Err(cursor.error_at(offset, format!("name {name} does not exist")));
            }
        }
        let mut location = [0; 4];
        for number in &mut location {
            let offset = cursor.offset();
            *number = cursor.u32()?;
            if *number > i32::MAX as u32 {
                return Err(cursor.error_at(offset, format!("no file has a line {number}")));
            }
        }
        frames.push(Frame { file, function, location });
    }
    cursor.end()?;
    Ok(frames)
}

pub(super) fn read_stacks(
    mut cursor: Cursor<'_>,
    num_frames: usize,
) -> Result<Vec<Stack>, ReadError> {
    let len = cursor.len(2)?;
    let mut stacks = Vec::with_capacity(len);
    let mut depths: Vec<u32> = Vec::with_capacity(len);
    for place in 0..len {
        let offset = cursor.offset();
        let caller = match cursor.u32()? {
            0 => None,
            caller if (caller - 1) as usize >= place => {
                return Err(cursor.error_at(offset, "a stack comes before its caller's"));
            }
            caller => Some(caller - 1),
        };
        let depth = caller.map_or(1, |caller| depths[caller as usize] + 1);
        if depth > MAX_STACK {
            let what = format!("a stack has more than {MAX_STACK} frames");
            return Err(cursor.error_at(offset, what));
        }
        depths.push(depth);
        let offset = cursor.offset();
        let frame = cursor.u32()?;
        if frame as usize >= num_frames {
            return Err(cursor.error_at(offset, format!("frame {frame} does not exist")));
        }
        stacks.push(Stack { caller, frame });
    }
    cursor.end()?;
    Ok(stacks)
}
