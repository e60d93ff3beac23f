// Command kubernetes is a Kubernetes API server with its job controller, for tests: one process, and one
// port of loopback. It has no scheduler and no nodes; a test binds pods and reports their state itself.
//
//	kubernetes DIRECTORY
//
// The directory has the state, and should have a short path: sockets are in it. The file `kubeconfig`
// in it appears when the server is ready; its user has all rights. SIGTERM ends the server.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controller/job"
)

const (
	// The longest wait for the store, and for the server.
	startLimit = time.Minute
	// The time between two questions whether the server is ready.
	interval = 50 * time.Millisecond
	// Jobs that the controller treats at the same time.
	jobWorkers = 2
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes DIRECTORY")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, directory string) error {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return err
	}
	client, err := store(ctx, directory)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer client.Close()
	files, err := newSecrets(directory)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	config, err := serve(ctx, directory, files, ended)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := waitUntilReady(ctx, clients, ended); err != nil {
		return err
	}
	if err := control(ctx, clients); err != nil {
		return fmt.Errorf("job controller: %w", err)
	}
	if err := writeKubeconfig(directory, config); err != nil {
		return err
	}
	return <-ended
}

// store starts etcd on sockets in the directory. It loses its data if the machine fails.
func store(ctx context.Context, directory string) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(directory, "etcd", "data")
	config.UnsafeNoFsync = true
	config.LogLevel = "error"
	config.ListenClientUrls = []url.URL{socket(directory, "client")}
	config.ListenPeerUrls = []url.URL{socket(directory, "peer")}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, err
	}
	started, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-started.Server.ReadyNotify():
		return started, nil
	case err = <-started.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startLimit):
		err = errors.New("not ready in time")
	}
	started.Close()
	return nil, err
}

func socket(directory, name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(directory, "etcd", name)}
}

// secrets are the files with the key of service accounts and the tokens of users, and the token of the
// user with all rights.
type secrets struct {
	key, tokens, token string
}

func newSecrets(directory string) (secrets, error) {
	made := secrets{
		key:    filepath.Join(directory, "service-accounts.pem"),
		tokens: filepath.Join(directory, "tokens.csv"),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return made, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return made, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	if err := os.WriteFile(made.key, block, 0o600); err != nil {
		return made, err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return made, err
	}
	made.token = hex.EncodeToString(random)
	line := made.token + ",admin,admin,\"system:masters\"\n"
	return made, os.WriteFile(made.tokens, []byte(line), 0o600)
}

// serve starts the API server, and returns how to reach it. Its end is sent to `ended`.
func serve(ctx context.Context, directory string, files secrets, ended chan<- error) (*rest.Config, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	given := options.NewServerRunOptions()
	certificates := filepath.Join(directory, "certificates")
	etcd := socket(directory, "client")
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, each := range given.Flags().FlagSets {
		flags.AddFlagSet(each)
	}
	if err := flags.Parse([]string{
		"--authorization-mode=RBAC",
		"--bind-address=127.0.0.1",
		// Nothing connects to it. Without it the server looks for the machine's own address.
		"--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + certificates,
		"--etcd-servers=" + etcd.String(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + files.key,
		"--service-account-signing-key-file=" + files.key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--token-auth-file=" + files.tokens,
	}); err != nil {
		return nil, err
	}
	given.SecureServing.Listener = listener
	given.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	if err := given.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := given.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if problems := completed.Validate(); len(problems) > 0 {
		return nil, utilerrors.NewAggregate(problems)
	}
	go func() { ended <- app.Run(ctx, completed) }()
	return &rest.Config{
		Host:        "https://" + listener.Addr().String(),
		BearerToken: files.token,
		// Signed by itself.
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(certificates, "apiserver.crt")},
		QPS:             -1,
	}, nil
}

// waitUntilReady returns when the server is ready, or has ended.
func waitUntilReady(ctx context.Context, client kubernetes.Interface, ended chan error) error {
	ready := func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the API server has ended: %w", err)
		default:
		}
		answer := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx)
		return answer.Error() == nil, nil
	}
	return wait.PollUntilContextTimeout(ctx, interval, startLimit, true, ready)
}

// control starts the job controller.
func control(ctx context.Context, client kubernetes.Interface) error {
	watches := informers.NewSharedInformerFactory(client, 0)
	pods, jobs := watches.Core().V1().Pods(), watches.Batch().V1().Jobs()
	controller, err := job.NewController(ctx, client, pods, jobs, nil, nil)
	if err != nil {
		return err
	}
	watches.Start(ctx.Done())
	go controller.Run(ctx, jobWorkers)
	return nil
}

// writeKubeconfig writes the file by which clients find the server.
func writeKubeconfig(directory string, config *rest.Config) error {
	const name = "tests"
	authorities, err := os.ReadFile(config.TLSClientConfig.CAFile)
	if err != nil {
		return err
	}
	made := clientcmdapi.NewConfig()
	made.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: authorities}
	made.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	made.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	made.CurrentContext = name
	unfinished := filepath.Join(directory, ".kubeconfig")
	if err := clientcmd.WriteToFile(*made, unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, filepath.Join(directory, "kubeconfig"))
}
