//go:build integration

package kubetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiserver is a kube-apiserver in a separate process.
type apiserver struct {
	*rest.Config
	tally   *tally
	clients *kubernetes.Clientset
	process *os.Process
	log     string // file
	ended   chan struct{}
}

const token = "kubetest"

// startAPIServer starts a kube-apiserver on an etcdServer, and waits until it is ready.
func startAPIServer(t *testing.T, f *etcdServer, flags ...string) *apiserver {
	t.Helper()
	dir := t.TempDir()
	port := freePort(t)
	signing := writeKey(t, filepath.Join(dir, "accounts.key"))
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"--etcd-servers=" + f.endpoint(),
		"--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", port), "--cert-dir=" + dir,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + signing, "--service-account-signing-key-file=" + signing,
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--allow-privileged=true",
		// There is no controller that creates service accounts, without which no pod would be admitted.
		"--disable-admission-plugins=ServiceAccount",
		"--etcd-compaction-interval=5s",
	}, flags...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), apiserverVariable+"=1", "KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true")
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s := &apiserver{
		Config: &rest.Config{
			Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 1000, Burst: 1000,
		},
		tally: f.tally, process: command.Process, log: log.Name(), ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		_ = command.Wait() // its log contains the reason
		_ = log.Close()
	}()
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("kube-apiserver %s ended its log with:\n%s", s.Host, tail(t, s.log))
		}
	})
	if s.clients, err = kubernetes.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kube-apiserver is ready", func() error {
		select {
		case <-s.ended:
			t.Fatalf("kube-apiserver ended:\n%s", tail(t, s.log))
		default:
		}
		return s.clients.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	return s
}

// stop ends the server like an operator. A server that does not end within three minutes is killed, and fails the test.
func (s *apiserver) stop(t *testing.T) {
	t.Helper()
	_ = s.process.Signal(syscall.SIGCONT)
	_ = s.process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(3 * time.Minute):
		t.Error("kube-apiserver did not end")
		_ = s.process.Kill()
		<-s.ended
	}
}

// inconsistencies returns how often the server found its caches consistent, and how often not.
func (s *apiserver) inconsistencies(t *testing.T) (good, bad int) {
	t.Helper()
	const checks = "apiserver_storage_consistency_checks_total"
	return s.sum(t, checks, `status="success"`), s.sum(t, checks, `status="failure"`)
}

// relists returns how often the server has filled its caches from lists.
func (s *apiserver) relists(t *testing.T) int {
	t.Helper()
	return s.sum(t, "apiserver_watch_cache_initializations_total", "")
}

// sum returns the sum of the series of a metric whose labels contain a text.
func (s *apiserver) sum(t *testing.T, metric, labels string) (sum int) {
	t.Helper()
	metrics, err := s.clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(metrics)) {
		var n float64
		name, value, _ := strings.Cut(line, "} ")
		if !strings.HasPrefix(name, metric+"{") || !strings.Contains(name, labels) {
			continue
		}
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// freePort returns an unused port.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// writeKey writes a new private key to a file, and returns its name.
func writeKey(t *testing.T, file string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tail returns the end of a file.
func tail(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-40):], nil)
}
