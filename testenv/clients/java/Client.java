import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Makes the calls that are recorded, over grpc-java. */
public class Client {
  private static final MethodDescriptor.Marshaller<byte[]> AS_IS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] bytes) {
          return new ByteArrayInputStream(bytes);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      };

  private static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.newBuilder(AS_IS, AS_IS)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("recorded.Service/Call")
          .build();

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = NettyChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    call(channel, 10).get();
    Future<byte[]> one = call(channel, 700);
    Future<byte[]> other = call(channel, 900);
    one.get();
    other.get();
    channel.shutdown().awaitTermination(10, TimeUnit.SECONDS);
  }

  private static Future<byte[]> call(ManagedChannel channel, int length) {
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(10, TimeUnit.SECONDS);
    return ClientCalls.futureUnaryCall(channel.newCall(METHOD, options), new byte[length]);
  }
}
