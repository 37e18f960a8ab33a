# Like backends.py, with the parsers of Rack, which Rails uses.
require "base64"
require "json"
require "rack"
require "stringio"

def texts(value)
  case value
  when String then [value]
  when Array then value.flat_map { |item| texts(item) }
  else []
  end
end

def of_hash(form)
  return [] unless form.is_a?(Hash)

  user = form["user"]
  texts(form["email"]) + texts(form["user.email"]) + (user.is_a?(Hash) ? texts(user["email"]) : [])
end

def read(type, body)
  return of_hash(JSON.parse(body)) if type.downcase.start_with?("application/json")

  env = {
    "REQUEST_METHOD" => "POST", "CONTENT_TYPE" => type, "CONTENT_LENGTH" => body.bytesize.to_s,
    "rack.input" => StringIO.new(body), "QUERY_STRING" => ""
  }
  of_hash(Rack::Request.new(env).POST)
end

$stdin.each_line do |line|
  form = JSON.parse(line)
  values = begin
    read(form["type"], Base64.decode64(form["body"]))
  rescue StandardError
    [] # The backend refuses the form.
  end
  values = values.map { |value| value.dup.force_encoding("UTF-8").scrub }
  puts JSON.generate({ "rack" => values })
  $stdout.flush
end
