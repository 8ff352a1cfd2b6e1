// Package tensorboard writes event files that TensorBoard reads: records of TFRecord's form (length, masked CRC-32C of the length,
// data, masked CRC-32C of the data), each an Event message of tensorflow/core/util/event.proto with scalars.
package tensorboard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages Event, Summary, Summary.Value and SessionLog.
const (
	eventWallTime    protowire.Number = 1
	eventStep        protowire.Number = 2
	eventFileVersion protowire.Number = 3
	eventSummary     protowire.Number = 5
	eventSessionLog  protowire.Number = 7
	summaryValue     protowire.Number = 1
	valueTag         protowire.Number = 1
	valueSimple      protowire.Number = 2
	sessionStatus    protowire.Number = 1
	sessionStart                      = 1 // SessionLog.START
	fileVersion                       = "brain.Event:2"
)

// File is an event file that is being written. It is not safe for concurrent use.
type File struct {
	file *os.File
	buf  []byte
}

// Create begins a new event file in a folder. What earlier files of the folder show at or after the step was never saved, and
// TensorBoard drops it: a resumed training does those steps again.
func Create(dir string, step int64, now time.Time) (*File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the event file: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	// Two in one second are told apart by the process.
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.%s.%d", now.Unix(), host, os.Getpid())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot create an event file: %w", err)
	}
	w := &File{file: f}
	version := protowire.AppendString(protowire.AppendTag(nil, eventFileVersion, protowire.BytesType), fileVersion)
	start := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
	err = w.event(now, 0, version)
	if err == nil {
		err = w.event(now, step, protowire.AppendBytes(protowire.AppendTag(nil, eventSessionLog, protowire.BytesType), start))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return w, nil
}

// Scalars adds a point to the curves named. It is in the file when this returns.
func (w *File) Scalars(now time.Time, step int64, values map[string]float64) error {
	var summary []byte
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), name)
		v = protowire.AppendFixed32(protowire.AppendTag(v, valueSimple, protowire.Fixed32Type), math.Float32bits(float32(values[name])))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), v)
	}
	return w.event(now, step, protowire.AppendBytes(protowire.AppendTag(nil, eventSummary, protowire.BytesType), summary))
}

// event writes one record.
func (w *File) event(now time.Time, step int64, what []byte) error {
	e := protowire.AppendFixed64(protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type), math.Float64bits(float64(now.UnixNano())/1e9))
	if step != 0 {
		e = protowire.AppendVarint(protowire.AppendTag(e, eventStep, protowire.VarintType), uint64(step))
	}
	w.buf = record(w.buf[:0], append(e, what...))
	if _, err := w.file.Write(w.buf); err != nil {
		return fmt.Errorf("cannot write the event file: %w", err)
	}
	return nil
}

// Close ends the file.
func (w *File) Close() error { return w.file.Close() }

// record appends data in TFRecord's form.
func record(to, data []byte) []byte {
	at := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(data)))
	to = binary.LittleEndian.AppendUint32(to, masked(to[at:]))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, masked(data))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the sum that TFRecord stores: rotated and shifted, so that a sum over data that hold sums still says something.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
