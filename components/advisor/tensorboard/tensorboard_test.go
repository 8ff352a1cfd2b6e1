package tensorboard

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schema is the part of TensorFlow's event.proto and summary.proto that is written here, for protobuf's own decoder.
func schema(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, of string, many bool) *descriptorpb.FieldDescriptorProto {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if many {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	const str, msg = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("event.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Event"), Field: []*descriptorpb.FieldDescriptorProto{
				field("wall_time", 1, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, "", false), field("step", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64, "", false),
				field("file_version", 3, str, "", false), field("summary", 5, msg, ".Summary", false), field("session_log", 7, msg, ".SessionLog", false)}},
			{Name: proto.String("Summary"), Field: []*descriptorpb.FieldDescriptorProto{field("value", 1, msg, ".Value", true)}},
			{Name: proto.String("Value"), Field: []*descriptorpb.FieldDescriptorProto{field("tag", 1, str, "", false), field("simple_value", 2, descriptorpb.FieldDescriptorProto_TYPE_FLOAT, "", false)}},
			{Name: proto.String("SessionLog"), Field: []*descriptorpb.FieldDescriptorProto{field("status", 1, descriptorpb.FieldDescriptorProto_TYPE_INT32, "", false)}},
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f.Messages().ByName("Event")
}

// The sums are those of other writers: CRC-32C's check value, and the first twelve bytes of every event file in the world, a length
// of 24 and its sum.
func TestSums(t *testing.T) {
	if got := crc32.Checksum([]byte("123456789"), castagnoli); got != 0xe3069283 {
		t.Errorf("sum %#x", got)
	}
	if got := hex.EncodeToString(record(nil, make([]byte, 24))[:12]); got != "1800000000000000a37f4b22" {
		t.Errorf("a record of 24 bytes begins with %s", got)
	}
}

// What is written is read back by protobuf's decoder, record by record.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	now := time.Unix(1_700_000_000, 500_000_000)
	w, err := Create(dir, 200, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Scalars(now.Add(time.Second), 240, map[string]float64{"return": -12.5, "alpha": .1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	es, err := os.ReadDir(dir)
	if err != nil || len(es) != 1 || !strings.HasPrefix(es[0].Name(), "events.out.tfevents.1700000000.") {
		t.Fatalf("%v, %v", es, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, es[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	event := schema(t)
	var all []*dynamicpb.Message
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		data := b[12 : 12+n]
		if binary.LittleEndian.Uint32(b[8:]) != masked(b[:8]) || binary.LittleEndian.Uint32(b[12+n:]) != masked(data) {
			t.Fatal("a sum is wrong")
		}
		m := dynamicpb.NewMessage(event)
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		if len(m.GetUnknown()) > 0 {
			t.Errorf("unknown fields in %x", data)
		}
		all = append(all, m)
		b = b[16+n:]
	}
	if len(all) != 3 {
		t.Fatalf("%d records", len(all))
	}
	get := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	if v := get(all[0], "file_version").String(); v != "brain.Event:2" || get(all[0], "wall_time").Float() != 1_700_000_000.5 {
		t.Errorf("the first record is %v", all[0])
	}
	if get(all[1], "step").Int() != 200 || get(get(all[1], "session_log").Message(), "status").Int() != 1 {
		t.Errorf("the second record is %v", all[1])
	}
	values := get(get(all[2], "summary").Message(), "value").List()
	if get(all[2], "step").Int() != 240 || values.Len() != 2 {
		t.Fatalf("the third record is %v", all[2])
	}
	for i, want := range []struct {
		tag string
		v   float32
	}{{"alpha", .1}, {"return", -12.5}} {
		m := values.Get(i).Message()
		if get(m, "tag").String() != want.tag || math.Abs(get(m, "simple_value").Float()-float64(want.v)) > 0 {
			t.Errorf("value %d is %v, want %v", i, m, want)
		}
	}
}

// A full disk is an error that says what could not be written.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	w := &File{file: full}
	defer w.Close()
	if err := w.Scalars(time.Now(), 1, map[string]float64{"x": 1}); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("%v", err)
	}
}
