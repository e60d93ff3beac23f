// Makes the calls that are recorded, over @grpc/grpc-js.
const grpc = require("@grpc/grpc-js");

const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const asIs = (bytes) => bytes;

function call(length) {
  // A field 1 with text, whose length has one or two bytes.
  const size = length < 128 ? [length] : [(length & 127) | 128, length >> 7];
  const message = Buffer.concat([Buffer.from([10, ...size]), Buffer.alloc(length, "r")]);
  const deadline = Date.now() + 10_000;
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      "/recorded.Service/Call", asIs, asIs, message, new grpc.Metadata(), { deadline },
      (error, answer) => (error ? reject(error) : resolve(answer)),
    );
  });
}

call(10)
  .then(() => Promise.all([call(700), call(900)]))
  .then(() => client.close())
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
