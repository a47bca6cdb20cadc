"""The event log on disk: a folder of segments, JSON Lines with a crc each. The written forms are `core.wire`'s.

A segment is `<index of its first record, 20 digits>.log`: a header (whose log, and the state at its base), records
without gaps, and closings (what the state hash was) where a node stopped in order. Records go on after a closing when
the node comes back. The newest segment is the one with the highest number; only it is written, only at its end.

A crash can leave the end of the newest segment torn; anything else that cannot be read is damage. The two are told
apart by what a torn write leaves: a beginning of the right bytes, and zeros where blocks were never written.
The unreadable stretch is a torn tail when all of these hold:

* it is the last line of the newest segment (nothing but zeros follows it),
* it begins like a line of ours, as far as it goes,
* there is no whole line, that is a crc, in it with something else behind,
* its newline is missing, or there are at least eight zeros in a row in it.

A last line that lacks only its newline is whole: it is kept, and reported as a tail of no bytes. A last line with its
newline, without zeros and with a wrong crc was once whole and may have been acknowledged: that is damage, as is any
flipped byte before the last line. A torn tail is reported by readers and cut off by the one writer; damage is refused
(`BadDataError`) with the record, the line and the byte, and never are later records dropped without a word.

`scan` reads and never writes, `disk` is the writer, `memory` its twin.
"""
