// Command nvidia-cuda-mps-control stands in for NVIDIA's two MPS programs where there is no card: the control daemon and the server
// that it starts for a user. It takes the same commands on standard input and answers alike, as far as NVIDIA's documents tell,
// and lets clients attach as CUDA programs do, through the pipe directory. It is for tests and the lab in a box, and in no image
// of the product.
//
//	nvidia-cuda-mps-control -f [-multiuser-server]   the daemon
//	nvidia-cuda-mps-control                          commands on standard input
//	nvidia-cuda-mps-control client [fault|stubborn]  a client, until its standard input ends; fault: one that crashes the card's work,
//	                                                 stubborn: one that heeds no SIGTERM
//
// Besides NVIDIA's commands the daemon takes `standin hang` (it answers nothing any more), `standin vanish` (it is gone without a
// word) and `standin stick` (a fault stays when its clients are gone).
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// serverName is the other program's.
const serverName = "nvidia-cuda-mps-server"

func main() {
	if filepath.Base(os.Args[0]) == serverName {
		// The server does nothing but be there, as its user, until the daemon is gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	pipe := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if pipe == "" {
		pipe = "/tmp/nvidia-mps"
	}
	var err error
	switch args := strings.Join(os.Args[1:], " "); args {
	case "-f", "-f -multiuser-server":
		err = serve(pipe, strings.Contains(args, "multiuser"))
	case "":
		err = commands(pipe)
	case "client", "client fault", "client stubborn":
		if args == "client stubborn" {
			signal.Ignore(syscall.SIGTERM)
		}
		err = client(pipe, args == "client fault")
	default:
		err = fmt.Errorf("usage: nvidia-cuda-mps-control [-f [-multiuser-server] | client [fault|stubborn]]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func socket(pipe string) string { return filepath.Join(pipe, "control") }

// commands passes each line on and prints the answers.
func commands(pipe string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		conn, err := net.Dial("unix", socket(pipe))
		if err != nil {
			return fmt.Errorf("cannot find the MPS control daemon")
		}
		fmt.Fprintln(conn, lines.Text())
		if _, err := io.Copy(os.Stdout, conn); err != nil {
			return err
		}
		conn.Close()
	}
	return lines.Err()
}

// client attaches as a CUDA program does and prints what becomes of it: "attached" first, at its end "terminated", "fault" (another's
// or its own) or "not ready" (CUDA_ERROR_MPS_SERVER_NOT_READY, 807).
func client(pipe string, fault bool) error {
	conn, err := net.Dial("unix", socket(pipe))
	if err != nil {
		return fmt.Errorf("no MPS: %w", err)
	}
	fmt.Fprintln(conn, "client")
	news := bufio.NewReader(conn)
	line, err := news.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the daemon is gone")
	}
	fmt.Print(line)
	if line != "attached\n" {
		os.Exit(3)
	}
	if fault {
		fmt.Fprintln(conn, "fault")
	} else {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	line, err = news.ReadString('\n')
	if err != nil {
		line = "server gone\n"
	}
	fmt.Print(line)
	os.Exit(3)
	return nil
}
